"""Importance sampling of a posterior from an approximation to it: how good that is, and draws that mend it."""

from dataclasses import dataclass

import jax
import numpy as np
import xarray as xr
from arviz_stats.base import array_stats
from jax import Array

from evidial_bayes.data.errors import InputError

# Above this Pareto shape the weights have so heavy a tail that no number of proposals can be relied on.
HIGHEST_PARETO_K = 0.7
# Log ratios that differ by less are those of an exact approximation: there is no tail to fit.
SAME = 1e-6


@dataclass(frozen=True, eq=False)
class Importance:
    """What proposals from an approximation say of the posterior.

    Parameters
    ----------
    chosen
        Int ``[draw]``: proposals that stand for the posterior.
    pareto_k
        Shape of the generalised Pareto distribution of the largest weights; infinite where no weight is finite.
    ess
        Effective number of proposals, one over the sum of squared normalised weights.
    log_evidence
        Log of the mean weight: the log marginal likelihood of the votes, NaN where ``pareto_k`` forbids it.
    resampled
        Whether draws were chosen in proportion to their weights; otherwise they are the approximation's own.
    """

    chosen: np.ndarray
    pareto_k: float
    ess: float
    log_evidence: float
    resampled: bool

    def group(self, *, converged: bool) -> xr.Dataset:
        """Group ``approximation`` of a fit: the numbers above, and whether the search for it ``converged``."""
        return xr.Dataset(
            attrs={
                "pareto_k": self.pareto_k,
                "importance_ess": self.ess,
                "log_evidence": self.log_evidence,
                "resampled": int(self.resampled),
                "converged": int(converged),
            }
        )


def importance(rng_key: Array, log_ratio: np.ndarray, num_samples: int) -> Importance:
    """Weigh proposals by Pareto-smoothed importance sampling, and choose draws by systematic resampling.

    Where the weights cannot be relied on, the first proposals are taken as they are: the result is then that of the
    approximation, and says so.

    Parameters
    ----------
    rng_key
        JAX random key.
    log_ratio
        Log posterior density, unnormalised, less log density of the approximation: ``[proposal]``. Proposals at which
        it is not finite weigh nothing.
    num_samples
        Number of draws; no more than proposals.

    Returns
    -------
    Importance
        Numbers, and which proposals to take, in random order.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling, JMLR 25; Yao, Vehtari, Simpson &
    Gelman (2018), Yes, but did it work?, ICML.
    """
    finite = np.flatnonzero(np.isfinite(log_ratio))
    if finite.size < 5:
        return Importance(np.arange(num_samples), np.inf, 0.0, np.nan, resampled=False)
    log_ratio, of_all = log_ratio[finite], finite.size / log_ratio.size
    if np.ptp(log_ratio) < SAME:
        log_weight, pareto_k = np.full(finite.size, -np.log(finite.size)), -np.inf
    else:
        # ArviZ takes log likelihoods, of which the weights of leave-one-out are the inverse.
        log_weight, pareto_k = array_stats.psislw(-log_ratio)
    share, pareto_k = np.exp(log_weight), float(pareto_k)
    ess = float(1 / (share**2).sum())
    # The bulk is smoothed by nothing but its normalisation, which is the sum of all weights.
    log_evidence = float(np.median(log_ratio - log_weight) + np.log(of_all / finite.size))
    if not pareto_k <= HIGHEST_PARETO_K:
        return Importance(np.arange(num_samples), pareto_k, ess, np.nan, resampled=False)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)))
    # One random number places all draws, so that a proposal is taken its expected number of times or nearly so.
    steps = (np.arange(num_samples) + rng.random()) / num_samples
    places = np.minimum(np.searchsorted(np.cumsum(share), steps), finite.size - 1)
    return Importance(rng.permutation(finite[places]), pareto_k, ess, log_evidence, resampled=True)


def check_draws(num_samples: int, num_proposals: int) -> None:
    """Check the settings of importance sampling.

    Raises
    ------
    InputError
        A number is out of range.
    """
    for name, value, least in (("num_samples", num_samples, 4), ("num_proposals", num_proposals, 100)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"inference.{name}: {value!r} is not usable; allowed: a whole number from {least} on.")
    if num_samples > num_proposals:
        raise InputError(
            f"inference.num_samples: {num_samples} is more than inference.num_proposals, {num_proposals}, of which "
            "draws are chosen."
        )
