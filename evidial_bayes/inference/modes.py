"""Whether there is more than one mode."""

import numpy as np
import xarray as xr

from evidial_bayes.inference.verdict import Check, Thresholds

# Chains whose mean log densities differ by more than this many of their own standard deviations are in different modes.
APART = 3.0


def mode_checks(fit: xr.DataTree, thresholds: Thresholds) -> list[Check]:
    """``modes``: of a search, how often the best was found and how far the next is; of chains, whether they differ."""
    if "modes" in fit.children:
        return [_of_starts(fit["modes"].dataset, thresholds)]
    if "sample_stats" not in fit.children or "lp" not in fit["sample_stats"].dataset:
        return []
    lp = fit["sample_stats"].dataset["lp"]
    return [_of_chains(lp)] if lp.sizes["chain"] > 1 and lp.sizes["draw"] > 1 else []


def _of_chains(lp: xr.DataArray) -> Check:
    """Compare chains by log density: one that stays below the others has found a mode of its own."""
    mean, sd = lp.mean("draw").to_numpy(), float(np.sqrt(lp.var("draw").mean()))
    gap = float(np.ptp(mean))
    apart = gap / sd if sd > 0 else 0.0
    low, high = int(mean.argmin()), int(mean.argmax())
    advice = (
        "All chains have the same log density."
        if apart <= APART
        else f"Two modes: chain {low} stays {gap:.1f} below chain {high} in log density. Their average is no "
        "posterior; search for the mode from many starts (inference=map), and use stronger priors or fewer classes."
    )
    return Check("modes", "PASS" if apart <= APART else "FAIL", apart, APART, advice)


def _of_starts(modes: xr.Dataset, thresholds: Thresholds) -> Check:
    """Judge a search by how many of its starts found the best mode, and whether another is nearly as good."""
    n_starts, share, gap = modes.sizes["start"], float(modes.attrs["share_best"]), float(modes.attrs["gap"])
    found = round(share * n_starts)
    words = f"{found} of {n_starts} starts found the best mode"
    words += "." if np.isnan(gap) else f"; the next one is {gap:.3g} below it in log density."
    if not bool(modes["converged"][0]):
        words += " The best search had not converged: raise inference.max_iterations."
        return Check("modes", "FAIL", share, thresholds.starts_review, words)
    if modes.attrs["relabelled"]:
        words += " Some starts found it with classes that have swapped names, or on a flat ridge."
    rare = n_starts == 1 or found < 2 or share < thresholds.starts_review
    near = gap < thresholds.gap_review
    if rare:
        words += " There may be a better one: raise inference.num_starts."
    if near:
        words += " A mode nearly as good says something else: an estimate at one of them leaves that out, draws do not."
    return Check("modes", "REVIEW" if rare or near else "PASS", share, thresholds.starts_review, words)
