"""Whether latent classes are the states that they are named after."""

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.verdict import Check, Thresholds


def class_checks(posterior: xr.Dataset, panel: Panel, thresholds: Thresholds) -> list[Check]:
    """``class_order``, ``diagonal`` and ``empty_class``, where the model has emissions."""
    if "emission" not in posterior:
        return []
    by_stratum = posterior["emission"].mean("draw")
    averaged = by_stratum.mean("stratum") if "stratum" in by_stratum.dims else by_stratum
    emission: np.ndarray = averaged.transpose("chain", "judge", "state", "category").to_numpy()
    checks = [_class_order(emission, panel), _diagonal(emission.mean(0), panel)]
    if "prevalence" in posterior:
        checks.append(_empty_class(posterior["prevalence"], panel, thresholds))
    return checks


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


def _empty_class(prevalence: xr.DataArray, panel: Panel, thresholds: Thresholds) -> Check:
    """Look for states that hardly any cell is in; prevalence ``[chain, draw, state]``."""
    cells = prevalence.mean(("chain", "draw")).to_numpy() * len(panel.cells)
    empty = [panel.codebook.states[k] for k in np.flatnonzero(cells < thresholds.cells_review)]
    advice = (
        "Every state has cells."
        if not empty
        else f"Hardly any cell is {', '.join(empty)}: what the votes say about that class is next to nothing, and its "
        "emissions are their prior. Leave the state out of the codebook, or merge it with another."
    )
    return Check("empty_class", "REVIEW" if empty else "PASS", float(cells.min()), thresholds.cells_review, advice)
