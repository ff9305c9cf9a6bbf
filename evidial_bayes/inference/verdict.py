"""What a check says, and where it draws the line."""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from evidial_bayes.data.errors import InputError

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
    votes_review
        Fewest votes of a judge.
    cells_review
        Fewest expected cells of a state.
    sigma_review
        Loading below which an effect is next to none, in units of the link.
    loading_review
        Loading above which an effect runs away, in units of the link.
    starts_review
        Smallest share of starts that found the best mode.
    gap_review
        Smallest distance in log density from the best mode to the next.

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
    votes_review: float = 10.0
    cells_review: float = 1.0
    sigma_review: float = 0.05
    loading_review: float = 5.0
    starts_review: float = 0.1
    gap_review: float = 2.0

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


def verdict(value: float, review: float, fail: float, *, low_is_good: bool) -> Status:
    """Verdict on a value; NaN fails."""
    if low_is_good:
        return "PASS" if value <= review else "REVIEW" if value <= fail else "FAIL"
    return "PASS" if value >= review else "REVIEW" if value >= fail else "FAIL"
