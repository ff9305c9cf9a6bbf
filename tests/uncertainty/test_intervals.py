import numpy as np
import pytest

from evidial_bayes.uncertainty.intervals import interval, mean_of_defined, undefined_share


def test_quantile_of_a_grid():
    # 0, 1, …, 1000: the q-quantile is 1000 q.
    lower, upper = interval(np.arange(1001.0), "quantile", 0.95)
    np.testing.assert_allclose([lower, upper], [25, 975])


def test_hdi_of_an_exponential_starts_at_zero():
    # The density falls, so the shortest 90 % interval is [0, log 10]; strata leave an error near 1/n.
    n = 20_000
    draws = -np.log1p(-(np.arange(n) + 0.5) / n)
    lower, upper = interval(draws, "hdi", 0.9)
    np.testing.assert_allclose([lower, upper], [0, np.log(10)], atol=1e-3)
    quantile = interval(draws, "quantile", 0.9)
    np.testing.assert_allclose(quantile, [-np.log(0.95), -np.log(0.05)], rtol=1e-2)


@pytest.mark.parametrize("kind", ["quantile", "hdi"])
def test_undefined_draws_are_left_out_and_counted(kind):
    values = np.arange(101.0)
    with_gaps = np.concatenate([values, np.full(99, np.nan)])
    table = np.stack([with_gaps, np.full(200, np.nan), np.full(200, 0.3)], axis=1)
    lower, upper = interval(table, kind, 0.9)
    assert (lower[0], upper[0]) == tuple(np.array(interval(values, kind, 0.9)))
    assert np.isnan([lower[1], upper[1]]).all()
    assert (lower[2], upper[2]) == (0.3, 0.3)
    assert undefined_share(table).tolist() == [99 / 200, 1.0, 0.0]


def test_shape_follows_the_trailing_dims():
    values = np.random.default_rng(0).random((50, 2, 3))
    lower, upper = interval(values, "quantile", 0.5)
    assert lower.shape == upper.shape == (2, 3)
    np.testing.assert_allclose(lower, np.quantile(values, 0.25, axis=0))


def test_mean_of_a_constant_is_the_constant():
    # 1/3 summed 4,000 times and divided again is not 1/3 in floating point.
    values = np.full((4000, 2), [1 / 3, 52 / 69])
    assert mean_of_defined(values).tolist() == [1 / 3, 52 / 69]


def test_mean_leaves_undefined_draws_out():
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [4.0, np.nan]])
    mean = mean_of_defined(values)
    assert mean[0] == 2.5
    assert np.isnan(mean[1])
