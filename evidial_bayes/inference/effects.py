"""Whether effects are there at all, and whether they stay within bounds."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from evidial_bayes.inference.verdict import Check, Thresholds

# What an effect of no size would leave of the model, by site.
WITHOUT = {
    "sigma": "model.dependence=none",
    "family_sigma": "model.family_effect=null",
    "participant_sigma": "model.participant_effect=null",
}


def effect_checks(posterior: xr.Dataset, thresholds: Thresholds) -> list[Check]:
    """``zero_<site>`` and ``runaway_<site>`` for every standard deviation or loading that the posterior has."""
    checks = []
    for site, without in WITHOUT.items():
        if site in posterior:
            checks += [_zero(site, posterior[site], without, thresholds), _runaway(site, posterior[site], thresholds)]
    return checks


def _zero(site: str, loadings: xr.DataArray, without: str, thresholds: Thresholds) -> Check:
    """Look for loadings whose middle draw is next to zero."""
    median = abs(loadings).median(("chain", "draw"))
    none = list(_entries(site, median, median < thresholds.sigma_review))
    advice = (
        f"Every {site} is away from zero."
        if not none
        else f"{', '.join(none)} is next to zero: votes depend on each other no more than by chance, and {without} "
        "would fit as well."
    )
    return Check(f"zero_{site}", "REVIEW" if none else "PASS", float(median.min()), thresholds.sigma_review, advice)


def _runaway(site: str, loadings: xr.DataArray, thresholds: Thresholds) -> Check:
    """Look for loadings that grow without bound: votes become all or nothing, and the likelihood has no maximum."""
    upper = abs(loadings).quantile(0.95, ("chain", "draw"))
    far = list(_entries(site, upper, upper > thresholds.loading_review))
    advice = (
        f"Every {site} stays within bounds."
        if not far
        else f"{', '.join(far)} runs away (95 % quantile {float(upper.max()):.3g}): the votes alone would send it to "
        f"infinity, so its prior decides. Tighten prior.{site}, share loadings, or leave constant judges out."
    )
    return Check(f"runaway_{site}", "REVIEW" if far else "PASS", float(upper.max()), thresholds.loading_review, advice)


def _entries(site: str, values: xr.DataArray, found: xr.DataArray) -> Iterator[str]:
    """Names of the entries that were found, such as ``sigma of judge 'a'``."""
    for at in np.argwhere(np.atleast_1d(found.to_numpy())):
        if not values.dims:
            yield site
        else:
            dim = values.dims[0]
            yield f"{site} of {dim} '{values[dim].values[at[0]]}'"
