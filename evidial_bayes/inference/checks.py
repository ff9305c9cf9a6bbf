"""Whether a fit can be trusted: one verdict, one sentence of advice each."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import arviz_stats  # noqa: F401  (registers the accessor `azstats`)
import numpy as np
import xarray as xr
from arviz_base import dataset_to_dataarray
from scipy.optimize import linear_sum_assignment

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel

Status = Literal["PASS", "REVIEW", "FAIL"]


@dataclass(frozen=True)
class Check:
    """One verdict on a fit.

    Parameters
    ----------
    name
        What was looked at.
    status
        PASS; REVIEW: usable, look at it; FAIL: not to be used.
    value
        What was found, NaN where it cannot be computed.
    threshold
        Where PASS ends.
    advice
        What was found, in words, and what to do about it.
    """

    name: str
    status: Status
    value: float
    threshold: float
    advice: str


@dataclass(frozen=True)
class Thresholds:
    """Where PASS ends (``review``) and where FAIL begins (``fail``).

    Parameters
    ----------
    rhat_review, rhat_fail
        Largest rank-normalised split R-hat of any parameter.
    ess_review, ess_fail
        Smallest effective sample size, bulk or tail, of any parameter.
    divergent_review, divergent_fail
        Share of draws that diverged.
    bfmi_review, bfmi_fail
        Smallest energy Bayesian fraction of missing information of any chain.

    Raises
    ------
    InputError
        A threshold is no number, or FAIL would begin before REVIEW.

    References
    ----------
    Vehtari et al. (2021), Rank-normalization, folding, and localization, Bayesian Analysis 16. Betancourt (2016),
    Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo.
    """

    rhat_review: float = 1.01
    rhat_fail: float = 1.05
    ess_review: float = 400.0
    ess_fail: float = 100.0
    divergent_review: float = 0.0
    divergent_fail: float = 0.01
    bfmi_review: float = 0.3
    bfmi_fail: float = 0.2

    def __post_init__(self) -> None:
        """Check that the thresholds are ordered."""
        for threshold in fields(self):
            value = getattr(self, threshold.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
                raise InputError(f"checks.{threshold.name}: {value!r} is not usable; allowed: a number.")
        for name, low_is_good in (("rhat", True), ("ess", False), ("divergent", True), ("bfmi", False)):
            review, fail = getattr(self, f"{name}_review"), getattr(self, f"{name}_fail")
            if (review > fail) if low_is_good else (review < fail):
                raise InputError(
                    f"checks.{name}_fail: {fail:g} would be reached before checks.{name}_review, {review:g}."
                )


def run_checks(fit: xr.DataTree, panel: Panel, thresholds: Thresholds) -> list[Check]:
    """Judge convergence of a fit and whether its latent classes are the states that they are named after.

    Parameters
    ----------
    fit
        Result of an inference algorithm.
    panel
        What was fitted.
    thresholds
        Where PASS ends and FAIL begins.

    Returns
    -------
    list of Check
        ``r_hat``, ``ess_bulk``, ``ess_tail``; ``divergences`` and ``e_bfmi`` where the algorithm reports them;
        ``class_order`` and ``diagonal`` where the model has emissions.
    """
    posterior = fit["posterior"].dataset
    stats = posterior.azstats
    checks = [_r_hat(stats.rhat(), thresholds)]
    checks += [_ess(f"ess_{kind}", stats.ess(method=kind), thresholds) for kind in ("bulk", "tail")]
    sample_stats = fit["sample_stats"].dataset if "sample_stats" in fit.children else xr.Dataset()
    if "diverging" in sample_stats:
        checks.append(_divergences(sample_stats["diverging"], thresholds))
    if "energy" in sample_stats:
        checks.append(_e_bfmi(sample_stats["energy"], thresholds))
    if "emission" in posterior:
        emission = posterior["emission"].mean("draw").transpose("chain", "judge", "state", "category").to_numpy()
        checks += [_class_order(emission, panel), _diagonal(emission.mean(0), panel)]
    return checks


def _r_hat(r_hat: xr.Dataset, thresholds: Thresholds) -> Check:
    name, worst = _worst(r_hat, np.argmax)
    status = _status(worst, thresholds.rhat_review, thresholds.rhat_fail, low_is_good=True)
    advice = (
        "Chains agree."
        if status == "PASS"
        else f"Chains disagree on {name}: run longer (inference.num_warmup, num_samples), and look at its trace; "
        "chains that settle at different values have found different modes, which stronger priors can separate."
    )
    return Check("r_hat", status, worst, thresholds.rhat_review, advice)


def _ess(check: str, ess: xr.Dataset, thresholds: Thresholds) -> Check:
    name, worst = _worst(ess, np.argmin)
    status = _status(worst, thresholds.ess_review, thresholds.ess_fail, low_is_good=False)
    what = "the middle" if check == "ess_bulk" else "the tails"
    advice = (
        f"Enough effective draws in {what} of every parameter."
        if status == "PASS"
        else f"Few effective draws in {what} of {name}: raise inference.num_samples."
    )
    return Check(check, status, worst, thresholds.ess_review, advice)


def _divergences(diverging: xr.DataArray, thresholds: Thresholds) -> Check:
    number, share = int(diverging.sum()), float(diverging.mean())
    status = _status(share, thresholds.divergent_review, thresholds.divergent_fail, low_is_good=True)
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
    status = _status(worst, thresholds.bfmi_review, thresholds.bfmi_fail, low_is_good=False)
    advice = (
        "Momentum resampling explores the energy well."
        if status == "PASS"
        else f"Chain {int(bfmi.argmin())} explores its energy slowly: run a longer warm-up, or use tighter priors."
    )
    return Check("e_bfmi", status, worst, thresholds.bfmi_review, advice)


def _class_order(emission: np.ndarray, panel: Panel) -> Check:
    """Compare the classes of every chain, emissions ``[chain, judge, state, category]``, with the states they name."""
    states, reading = panel.codebook.states, panel.codebook.reading
    # Probability that the panel reads class k as state l; the best one-to-one naming should be the given one.
    score = emission.mean(1)[:, :, reading]
    wrong = []
    for chain, table in enumerate(score):
        _, best = linear_sum_assignment(table, maximize=True)
        if table[np.arange(len(best)), best].sum() > np.trace(table) + 1e-9:
            swapped = ", ".join(
                f"'{states[k]}' is read as '{states[b]}'" for k, b in enumerate(best) if reading[k] != reading[b]
            )
            wrong.append(f"chain {chain}: {swapped}")
    advice = (
        f"In all {len(score)} chains every class is the state that it is named after."
        if not wrong
        else f"Classes and names are mixed up ({'; '.join(wrong)}): raise prior.emission.diagonal or name known states."
    )
    return Check("class_order", "FAIL" if wrong else "PASS", len(wrong) / len(score), 0.0, advice)


def _diagonal(emission: np.ndarray, panel: Panel) -> Check:
    """Look for judges who read a state as another category most of the time: emission ``[judge, state, category]``."""
    codebook = panel.codebook
    judges = panel.coords["judge"]
    off = emission.argmax(-1) != codebook.reading
    share = float(off.mean())
    if not off.any():
        return Check("diagonal", "PASS", 0.0, 0.0, "Every judge reads every state as itself most of the time.")
    lost = [codebook.states[k] for k in np.flatnonzero(emission.mean(0).argmax(-1) != codebook.reading)]
    pairs = [
        f"{judges[j]} reads '{codebook.states[k]}' as '{codebook.categories[emission[j, k].argmax()]}'"
        for j, k in np.argwhere(off)
    ]
    found = "; ".join(pairs[:5]) + (f"; and {len(pairs) - 5} more" if len(pairs) > 5 else "")
    if lost:
        advice = (
            f"The panel as a whole does not read {', '.join(lost)} as itself, so that class is not the state of that "
            f"name ({found}): merge states, raise prior.emission.diagonal, or name known states."
        )
        return Check("diagonal", "FAIL", share, 0.0, advice)
    advice = f"Some judges misread a state more often than not ({found}): look at their votes on it."
    return Check("diagonal", "REVIEW", share, 0.0, advice)


def _worst(values: xr.Dataset, pick: Callable[[np.ndarray], np.intp]) -> tuple[str, float]:
    """Entry that decides a check, and its name; NaN, which nothing can vouch for, comes first."""
    labelled = dataset_to_dataarray(values.expand_dims("one"), sample_dims=["one"]).isel(one=0)
    entries = labelled.to_numpy()
    worst = int(np.isnan(entries).argmax() if np.isnan(entries).any() else pick(entries))
    return str(labelled["label"].values[worst]), float(entries[worst])


def _status(value: float, review: float, fail: float, *, low_is_good: bool) -> Status:
    """Verdict on a value; NaN fails."""
    if low_is_good:
        return "PASS" if value <= review else "REVIEW" if value <= fail else "FAIL"
    return "PASS" if value >= review else "REVIEW" if value >= fail else "FAIL"
