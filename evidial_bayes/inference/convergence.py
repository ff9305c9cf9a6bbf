"""Whether a sampler has converged."""

from collections.abc import Callable

import arviz_stats  # noqa: F401  (registers the accessor `azstats`)
import numpy as np
import xarray as xr
from arviz_base import dataset_to_dataarray

from evidial_bayes.inference.verdict import Check, Thresholds, verdict


def convergence_checks(fit: xr.DataTree, thresholds: Thresholds) -> list[Check]:
    """``r_hat``, ``ess_bulk``, ``ess_tail``; ``divergences`` and ``e_bfmi`` where the algorithm reports them."""
    posterior = fit["posterior"].dataset
    stats = posterior.azstats
    checks = [_r_hat(stats.rhat(), thresholds)]
    checks += [_ess(f"ess_{kind}", stats.ess(method=kind), thresholds) for kind in ("bulk", "tail")]
    sample_stats = fit["sample_stats"].dataset if "sample_stats" in fit.children else xr.Dataset()
    if "diverging" in sample_stats:
        checks.append(_divergences(sample_stats["diverging"], thresholds))
    if "energy" in sample_stats:
        checks.append(_e_bfmi(sample_stats["energy"], thresholds))
    return checks


def _r_hat(r_hat: xr.Dataset, thresholds: Thresholds) -> Check:
    name, worst = _worst(r_hat, np.argmax)
    status = verdict(worst, thresholds.rhat_review, thresholds.rhat_fail, low_is_good=True)
    advice = (
        "Chains agree."
        if status == "PASS"
        else f"Chains disagree on {name}: run longer (inference.num_warmup, num_samples), and look at its trace; "
        "chains that settle at different values have found different modes, which stronger priors can separate."
    )
    return Check("r_hat", status, worst, thresholds.rhat_review, advice)


def _ess(check: str, ess: xr.Dataset, thresholds: Thresholds) -> Check:
    name, worst = _worst(ess, np.argmin)
    status = verdict(worst, thresholds.ess_review, thresholds.ess_fail, low_is_good=False)
    what = "the middle" if check == "ess_bulk" else "the tails"
    advice = (
        f"Enough effective draws in {what} of every parameter."
        if status == "PASS"
        else f"Few effective draws in {what} of {name}: raise inference.num_samples."
    )
    return Check(check, status, worst, thresholds.ess_review, advice)


def _divergences(diverging: xr.DataArray, thresholds: Thresholds) -> Check:
    number, share = int(diverging.sum()), float(diverging.mean())
    status = verdict(share, thresholds.divergent_review, thresholds.divergent_fail, low_is_good=True)
    advice = (
        "No trajectory diverged."
        if number == 0
        else f"{number} of {diverging.size} draws diverged: raise inference.target_accept_prob (to .95 or .99); "
        "if they stay, the posterior has a corner that the sampler does not reach."
    )
    return Check("divergences", status, share, thresholds.divergent_review, advice)


def _e_bfmi(energy: xr.DataArray, thresholds: Thresholds) -> Check:
    bfmi = energy.to_dataset(name="energy").azstats.bfmi()["energy"].to_numpy()
    worst = float(bfmi.min())
    status = verdict(worst, thresholds.bfmi_review, thresholds.bfmi_fail, low_is_good=False)
    advice = (
        "Momentum resampling explores the energy well."
        if status == "PASS"
        else f"Chain {int(bfmi.argmin())} explores its energy slowly: run a longer warm-up, or use tighter priors."
    )
    return Check("e_bfmi", status, worst, thresholds.bfmi_review, advice)


def _worst(values: xr.Dataset, pick: Callable[[np.ndarray], np.intp]) -> tuple[str, float]:
    """Entry that decides a check, and its name; NaN, which nothing can vouch for, comes first."""
    labelled = dataset_to_dataarray(values.expand_dims("one"), sample_dims=["one"]).isel(one=0)
    entries = labelled.to_numpy()
    worst = int(np.isnan(entries).argmax() if np.isnan(entries).any() else pick(entries))
    return str(labelled["label"].values[worst]), float(entries[worst])
