"""Whether a fit can be trusted: one verdict, one sentence of advice each."""

import xarray as xr

from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.classes import class_checks
from evidial_bayes.inference.convergence import convergence_checks
from evidial_bayes.inference.effects import effect_checks
from evidial_bayes.inference.modes import mode_checks
from evidial_bayes.inference.verdict import Check, Thresholds


def run_checks(fit: xr.DataTree, panel: Panel, thresholds: Thresholds) -> list[Check]:
    """Judge a fit: its convergence, its modes, its effects, and whether classes are the states they are named after.

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
        ``r_hat``, ``ess_bulk``, ``ess_tail``, ``divergences``, ``e_bfmi`` of samplers; ``modes``; ``class_order``,
        ``diagonal`` and ``empty_class`` of emissions; ``zero_<site>`` and ``runaway_<site>`` of effects.
    """
    posterior = fit["posterior"].dataset
    # A single draw is an estimate, which has nothing to converge.
    sampled = posterior.sizes["draw"] > 1
    return [
        *(convergence_checks(fit, thresholds) if sampled else []),
        *mode_checks(fit, thresholds),
        *class_checks(posterior, panel, thresholds),
        *effect_checks(posterior, thresholds),
    ]
