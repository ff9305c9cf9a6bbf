"""Which share of an interval's variance each source of uncertainty adds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# A standard deviation below this is rounding in rates between 0 and 1, not variation.
NEGLIGIBLE = 1e-12


class VarianceShares(NamedTuple):
    """Shares of the variance, each float ``[…]`` between 0 and 1, summing to one."""

    states: NDArray[np.float64]
    parameters: NDArray[np.float64]
    participants: NDArray[np.float64]


def variance_shares(
    values: NDArray[np.floating],
    other_participants: NDArray[np.floating],
    other_states: NDArray[np.floating],
    baseline: NDArray[np.floating],
    other_baseline: NDArray[np.floating],
    *,
    parameters: bool,
) -> VarianceShares:
    """Law of total variance of a metric M(θ, Z, W): parameters θ, states Z given θ, participant weights W.

    ``V = Var E[M|θ] + E Var(E[M|θ,Z] | θ) + E Var(M|θ,Z)``: the terms are what *parameters*, then *states
    given parameters*, then *participants* add. They follow from pairs of draws that share some of their
    inputs (pick-freeze): with primes for fresh copies, ``Cov(M(θ,Z,W), M(θ,Z',W'))`` is the first term and
    ``Cov(M(θ,Z,W), M(θ,Z,W'))`` the sum of the first two.

    The metric at one fixed state of every cell and the same weights is subtracted before. It depends on W
    alone, so the covariances between copies stay what they were while the noise of their estimates falls; it
    falls to nothing for metrics on which the reference has no bearing, such as accuracy.

    Parameters
    ----------
    values
        M(θ, Z, W), float ``[draw, …]``.
    other_participants
        M(θ, Z, W'), float ``[draw, …]``.
    other_states
        M(θ, Z', W'), float ``[draw, …]``.
    baseline
        M(z, W) for one fixed z, float ``[draw, …]``.
    other_baseline
        M(z, W') for the same z, float ``[draw, …]``.
    parameters
        Whether θ varies over draws; if not its share is exactly zero.

    Returns
    -------
    VarianceShares
        Negative estimates are set to zero and the rest is scaled to sum to one. NaN where the variance is
        zero or fewer than two draws are defined in all five. Monte Carlo standard error at most about
        1/√draw.

    Notes
    -----
    Source: Sobol' (2001); Janon et al. (2014) on pick-freeze estimates.
    """
    defined = ~np.isnan(values + other_participants + other_states + baseline + other_baseline)
    own = values - baseline
    total = _covariance(values, values, defined)
    reference = _covariance(own, other_participants - other_baseline, defined)
    shared = _covariance(own, other_states - other_baseline, defined) if parameters else np.zeros_like(total)
    parts = np.clip([reference - shared, shared, total - reference], 0, None)
    varies = total > NEGLIGIBLE**2  # False for NaN
    share = parts / np.where(varies, parts.sum(0), 1)
    return VarianceShares(*np.where(varies, share, np.nan))


def _covariance(a: NDArray[np.floating], b: NDArray[np.floating], defined: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sample covariance over the defined draws ``[draw, …]``; NaN with fewer than two of them."""
    number = defined.sum(0)
    a, b = (np.where(defined, x, 0.0) for x in (a, b))
    a, b = (np.where(defined, x - x.sum(0) / np.maximum(number, 1), 0.0) for x in (a, b))
    return np.where(number > 1, (a * b).sum(0) / np.maximum(number - 1, 1), np.nan)
