import jax
import numpy as np
import pytest
from scipy import integrate, stats

from evidial_bayes.data.errors import InputError
from evidial_bayes.models.emission.base import Rows
from evidial_bayes.models.emission.dirichlet import DiagonalDirichlet
from evidial_bayes.models.priors import (
    LogRatioDirichlet,
    Misreading,
    SymmetricDirichlet,
    ZeroSumSlopes,
    from_log_ratio,
    to_log_ratio,
)
from evidial_bayes.models.quadrature import GaussHermite, PaperGrid

ALPHA = np.array([2.0, 1.0, 3.5])


def test_log_ratio_density_integrates_to_one():
    prior = LogRatioDirichlet(ALPHA)
    density = jax.jit(lambda x: jax.numpy.exp(prior.log_prob(x)))
    total, _ = integrate.dblquad(lambda a, b: float(density(np.array([a, b]))), -14, 14, -14, 14, epsabs=1e-5)
    assert total == pytest.approx(1, abs=1e-4)


def test_log_ratio_density_is_scipys_dirichlet_times_the_jacobian():
    x = np.array([0.3, -0.8])
    p = np.exp(np.asarray(from_log_ratio(x)))
    jacobian = np.asarray(jax.jacfwd(lambda v: jax.numpy.exp(from_log_ratio(v))[:2])(x))
    expected = stats.dirichlet.logpdf(p, ALPHA) + np.log(abs(np.linalg.det(jacobian)))
    assert float(LogRatioDirichlet(ALPHA).log_prob(x)) == pytest.approx(expected, abs=1e-10)


def test_samples_have_dirichlet_moments():
    n = 20_000
    x = LogRatioDirichlet(ALPHA).sample(jax.random.key(3), (n,))
    p = np.exp(np.asarray(from_log_ratio(x)))
    mean, variance = stats.dirichlet.mean(ALPHA), stats.dirichlet.var(ALPHA)
    assert np.abs(p.mean(0) - mean).max() < 4 * np.sqrt(variance.max() / n)
    np.testing.assert_allclose(to_log_ratio(p), x, atol=1e-9)


def test_coordinates_are_isometric():
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(4), size=2)
    clr = [np.log(v) - np.log(v).mean() for v in (p, q)]
    distance = np.linalg.norm(np.asarray(to_log_ratio(p)) - np.asarray(to_log_ratio(q)))
    assert distance == pytest.approx(np.linalg.norm(clr[0] - clr[1]))


def test_diagonal_counts_stand_where_the_state_is_read():
    reads = np.eye(3)[[0, 2, 2]]
    none = np.zeros((2, 3, 3))
    rows = Rows(reads, (("judge", 2),), none, "logit", none)
    expected = [[5, 2, 2], [2, 2, 5], [2, 2, 5]]
    np.testing.assert_array_equal(DiagonalDirichlet(5.0, 2.0).concentration(rows), [expected, expected])


def test_symmetric_counts_are_the_same_for_all_states():
    np.testing.assert_array_equal(SymmetricDirichlet(0.5).over(3), [0.5, 0.5, 0.5])


@pytest.mark.parametrize("n_states", [2, 3, 5])
def test_misreading_has_its_mean_on_the_diagonal_and_spreads_the_rest(n_states):
    counts = np.asarray(Misreading(0.8, 12.0).over(n_states))
    np.testing.assert_allclose(counts.sum(1), 12.0)
    for k in range(n_states):
        mean = stats.dirichlet.mean(counts[k])
        assert mean[k] == pytest.approx(0.8)
        np.testing.assert_allclose(np.delete(mean, k), 0.2 / (n_states - 1))


def test_one_state_cannot_be_misread():
    counts = np.asarray(Misreading().over(1))
    assert counts.shape == (1, 1)
    assert counts > 0


@pytest.mark.parametrize("right", [1.0, 1.2])
def test_a_share_of_one_is_no_misreading(right):
    with pytest.raises(
        InputError, match=rf"Misreading\.right: {right} is not usable; allowed: a share between 0 and 1"
    ):
        Misreading(right)


def test_slopes_are_normal_deviations_from_their_mean_over_states():
    """K independent normals less their mean: variance scale² (1 − 1/K), covariance −scale²/K; no mass elsewhere."""
    n, scale = 20_000, 1.5
    x = np.asarray(ZeroSumSlopes(scale).over(4).sample(jax.random.key(4), (n,)))
    np.testing.assert_allclose(x.sum(-1), 0, atol=1e-12)
    expected = scale**2 * (np.eye(4) - 0.25)
    # The standard error of a covariance of normals is √((σ_ii σ_jj + σ_ij²) / n).
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / n)
    assert np.all(np.abs(np.cov(x.T) - expected) < 4.5 * error)
    density = ZeroSumSlopes(scale).over(4).log_prob(x[0])
    assert float(density) == pytest.approx(
        stats.norm.logpdf(x[0], scale=scale).sum() - stats.norm.logpdf(0, scale=scale)
    )


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_numbers_of_priors_are_positive(value):
    made = (SymmetricDirichlet, DiagonalDirichlet, ZeroSumSlopes, Misreading, lambda weight: Misreading(0.9, weight))
    for make in made:
        with pytest.raises(InputError, match="allowed: a positive number"):
            make(value)


@pytest.mark.parametrize("power", range(8))
def test_gauss_hermite_gives_normal_moments(power):
    b, log_weight = GaussHermite(9)(np.asarray(1.7))
    exact = stats.norm(scale=1.7).moment(power) if power else 1.0
    assert float(np.exp(log_weight) @ np.asarray(b) ** power) == pytest.approx(exact, abs=1e-9)


def test_the_paper_grid_is_81_points_whose_weights_sum_to_one():
    b, log_weight = PaperGrid()(np.asarray(0.9))
    assert (len(b), b[0], b[-1]) == (81, -6, pytest.approx(6))
    assert float(np.exp(log_weight).sum()) == pytest.approx(1)


@pytest.mark.parametrize("nodes", [0, 201, 7.5, True])
def test_a_wrong_number_of_nodes_is_named(nodes):
    with pytest.raises(InputError, match="a whole number from 1 to 200"):
        GaussHermite(nodes)
