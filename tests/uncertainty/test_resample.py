import jax
import numpy as np
import pytest

from evidial_bayes.uncertainty.resample import participant_weights

N, P = 20_000, 9


@pytest.mark.parametrize("kind", ["bayesian", "multinomial"])
def test_rows_sum_to_the_number_of_participants(kind):
    weights = np.asarray(participant_weights(jax.random.key(0), 500, P, kind))
    assert weights.shape == (500, P)
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights.sum(1), P, rtol=1e-14)
    assert (weights >= 0).all()


@pytest.mark.parametrize(
    ("kind", "variance", "covariance"),
    [
        # P · Dirichlet(1, …, 1): variance (P − 1)/(P + 1), covariance −1/(P + 1).
        ("bayesian", (P - 1) / (P + 1), -1 / (P + 1)),
        # Multinomial(P; 1/P, …): variance 1 − 1/P, covariance −1/P.
        ("multinomial", 1 - 1 / P, -1 / P),
    ],
)
def test_moments(kind, variance, covariance):
    weights = np.asarray(participant_weights(jax.random.key(1), N, P, kind))
    expected = np.full((P, P), covariance)
    np.fill_diagonal(expected, variance)
    centred = weights - 1
    products = centred[:, :, None] * centred[:, None, :]
    # Five standard errors, estimated from the draws: 9 means and 45 distinct moments.
    assert (np.abs(centred.mean(0)) < 5 * centred.std(0) / np.sqrt(N)).all()
    assert (np.abs(products.mean(0) - expected) < 5 * products.std(0) / np.sqrt(N)).all()


def test_multinomial_weights_are_whole_numbers_and_bayesian_ones_positive():
    multinomial = np.asarray(participant_weights(jax.random.key(2), 200, P, "multinomial"))
    assert (multinomial == multinomial.round()).all()
    assert (multinomial == 0).any()
    assert (np.asarray(participant_weights(jax.random.key(2), 200, P, "bayesian")) > 0).all()


def test_dirichlet_marginal():
    # A share of Dirichlet(1, …, 1) is Beta(1, P − 1): P(share > x) = (1 − x)^(P − 1).
    share = np.asarray(participant_weights(jax.random.key(3), N, P, "bayesian"))[:, 0] / P
    for x in (0.02, 0.1, 0.3):
        p = (1 - x) ** (P - 1)
        assert abs((share > x).mean() - p) < 4.5 * np.sqrt(p * (1 - p) / N)
