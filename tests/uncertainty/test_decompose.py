import numpy as np
import pytest

from evidial_bayes.uncertainty.decompose import variance_shares

N = 20_000


def draw(metric, seed, n=N):
    """Pick-freeze draws of ``metric(θ, z, w)`` with standard normal inputs; ``z`` is the state given θ."""
    rng = np.random.default_rng(seed)
    theta, z, other_z, w, other_w = rng.standard_normal((5, n))
    return (
        metric(theta, z, w),
        metric(theta, z, other_w),
        metric(theta, other_z, other_w),
        metric(0.0, 0.0, w),
        metric(0.0, 0.0, other_w),
    )


@pytest.mark.parametrize(("a", "b", "c"), [(1, 1, 1), (3, 2, 1), (0.2, 1, 2), (0, 1, 0), (0, 0, 1), (1, 0, 0)])
def test_sum_of_independent_parts(a, b, c):
    # M = aθ + bZ + cW with unit variances: shares a², b², c² over their sum.
    shares = variance_shares(*draw(lambda t, z, w: a * t + b * z + c * w, 0), parameters=True)
    expected = np.array([b**2, a**2, c**2]) / (a**2 + b**2 + c**2)
    # A covariance of two variables with unit variance has standard error at most √2/√n.
    np.testing.assert_allclose(shares, expected, atol=4.5 * np.sqrt(2 / N))
    assert abs(sum(shares) - 1) < 1e-12


def test_interaction_belongs_to_the_later_source():
    # M = θ + θZ + ZW: Var E[M|θ] = 1, E Var(E[M|θ,Z]|θ) = E θ² = 1, E Var(M|θ,Z) = E Z² = 1.
    shares = variance_shares(*draw(lambda t, z, w: t + t * z + z * w, 1, 100_000), parameters=True)
    # Products M M' have variance up to 54 (fourth moments of normals), so a share, over a total of 3, has a
    # standard error of about 0.008; 4.5 of them.
    np.testing.assert_allclose(shares, [1 / 3] * 3, atol=0.04)


def test_a_metric_without_reference_belongs_to_participants_exactly():
    shares = variance_shares(*draw(lambda t, z, w: w + 0 * (t + z), 2), parameters=True)
    assert tuple(shares) == (0, 0, 1)


def test_frozen_parameters_have_no_share():
    shares = variance_shares(*draw(lambda t, z, w: z + w + 0 * t, 3), parameters=False)
    assert shares.parameters == 0
    assert abs(shares.states - 0.5) < 4.5 * np.sqrt(2 / N)


def test_subtracting_the_baseline_does_not_bias_when_it_interacts():
    # M = (1 + θ)(1 + Z) + 2W, baseline 1 + 2W: Var E[M|θ] = 1, E Var(E[M|θ,Z]|θ) = E(1 + θ)² = 2; W adds 4.
    shares = variance_shares(*draw(lambda t, z, w: (1 + t) * (1 + z) + 2 * w, 4), parameters=True)
    # Variances of the products 48 and 128, over a total 7: standard error of a share near 0.01; 4.5 of them.
    np.testing.assert_allclose(shares, [2 / 7, 1 / 7, 4 / 7], atol=0.045)


def test_columns_are_apart_and_undefined_or_constant_ones_are_nan():
    normal = np.stack(draw(lambda t, z, w: t + z + w, 5))
    constant = np.full_like(normal, 0.1)
    undefined = np.full_like(normal, np.nan)
    gaps = normal.copy()
    gaps[0, ::2] = np.nan
    rounding = 1 + 1e-16 * normal
    shares = np.stack(variance_shares(*np.stack([normal, constant, undefined, gaps, rounding], -1), parameters=True))
    assert np.isnan(shares[:, [1, 2, 4]]).all()
    np.testing.assert_allclose(shares[:, 0], variance_shares(*normal, parameters=True), rtol=1e-10)
    np.testing.assert_allclose(shares[:, 3], variance_shares(*normal[:, 1::2], parameters=True), rtol=1e-10)


def test_negative_estimates_become_zero_and_the_rest_sums_to_one():
    for seed in range(20):
        shares = np.array(variance_shares(*draw(lambda t, z, w: w + 0.01 * z, seed, 100), parameters=True))
        assert (shares >= 0).all()
        assert abs(shares.sum() - 1) < 1e-12
