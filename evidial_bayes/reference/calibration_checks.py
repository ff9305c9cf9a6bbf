"""Whether a calibration can be trusted."""

import arviz_stats  # noqa: F401  (registers the accessor `azstats`)
import numpy as np
import xarray as xr

from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.verdict import Check, Status, Thresholds

# Fewer known cells than this leave the calibration to its prior: about ten for each of its handful of parameters.
ENOUGH_CELLS = 60


def calibration_checks(parameters: xr.Dataset, panel: Panel, thresholds: Thresholds) -> list[Check]:
    """Judge how much a calibration was learned from, and whether its chains agree.

    Parameters
    ----------
    parameters
        Draws of the calibration's parameters, ``[chain, draw, ...]``.
    panel
        The panel with its known states.
    thresholds
        Where PASS ends and FAIL begins.

    Returns
    -------
    list of Check
        ``calibration_cells``, ``calibration_states`` and, with more than one chain, ``calibration_r_hat``.
    """
    sampled = (panel.known >= 0) & ~panel.constructed & (panel.n_votes > 0)
    n_known = int(sampled.sum())
    few = n_known < ENOUGH_CELLS
    advice = f"{n_known} known cells inform the calibration."
    if few:
        have = "No cell has" if n_known == 0 else f"Only {n_known} cells have"
        advice = (
            f"{have} a known state, so the calibration is its prior more than anything learned: have people read a "
            f"random sample of cells ({ENOUGH_CELLS} or more), or sweep reference.calibration as a sensitivity."
        )
    checks = [Check("calibration_cells", "REVIEW" if few else "PASS", float(n_known), float(ENOUGH_CELLS), advice)]
    missing = sorted(set(range(len(panel.codebook.states))) - set(panel.known[sampled].tolist()))
    names = ", ".join(panel.codebook.states[k] for k in missing)
    advice = (
        f"No known cell is {names}: nothing is learned about when the panel misses it."
        if missing
        else "Every state is among the known cells."
    )
    checks.append(Check("calibration_states", "REVIEW" if missing else "PASS", float(len(missing)), 0.0, advice))
    if parameters.sizes["chain"] > 1:
        worst = max(float(np.nanmax(r_hat.to_numpy())) for r_hat in parameters.azstats.rhat().data_vars.values())
        review, fail = thresholds.rhat_review, thresholds.rhat_fail
        status: Status = "PASS" if worst <= review else "REVIEW" if worst <= fail else "FAIL"
        advice = "Chains of the calibration agree." if status == "PASS" else "Chains of the calibration disagree."
        if status != "PASS":
            advice += " Draw more (inference.num_samples): each draw of the fit carries its chain on by a few steps."
        checks.append(Check("calibration_r_hat", status, worst, review, advice))
    return checks
