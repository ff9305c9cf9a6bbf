"""Support of correct predictions: how many label-correct answers lack evidence in the text.

Everything here is a pure function of one draw: one state per cell and one weight per cell. Put many draws
through `jax.vmap`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

#: Codes of predictions that are no label; labels are coded by their position in the codebook.
ABSTAINED, FAILED = -1, -2

#: What a state's evidence says to a label, as in ``Codebook.support``.
SUPPORTED, UNSUPPORTED, OPPOSED = 0, 1, 2

#: What became of a planned prediction before its evidence is looked at, in the order of the dim ``answer``.
ANSWERS = ("correct", "incorrect", "abstained", "failed")

#: Names of the metrics, in the order of reports.
METRICS = (
    "ucr",
    "hit_caliber",
    "accuracy",
    "coverage",
    "abstention_rate",
    "failure_rate",
    "supported_correct_rate",
    "ucr_lower",
    "ucr_upper",
    "hit_caliber_lower",
    "hit_caliber_upper",
    "correct_supported",
    "correct_unsupported",
    "correct_opposed",
    "correct_unresolved",
    "incorrect",
    "not_answered",
)


class Counts(NamedTuple):
    """Weighted numbers of planned predictions in one draw, each float ``[system]``.

    Denominators are sums of what they hold and no differences, so that an empty one is exactly zero.
    """

    planned: Array  #: N, all of them
    resolved: Array  #: N − R: failed ones, and any others whose cell the reference resolves
    correct: Array  #: C
    incorrect: Array
    abstained: Array
    failed: Array
    supported: Array  #: S: correct, and the state supports the label
    unsupported: Array  #: U: correct, and the state settles nothing
    opposed: Array  #: D: correct, and the state settles on another label
    correct_unresolved: Array  #: R_c: correct, and the reference does not resolve the cell


def tally_answers(
    system: NDArray[np.integer],
    cell: NDArray[np.integer],
    prediction: NDArray[np.integer],
    label: NDArray[np.integer],
    n_systems: int,
) -> NDArray[np.float64]:
    """Planned predictions per answer, system and cell: the part of the audit that no draw changes.

    Parameters
    ----------
    system, cell, prediction
        Int ``[prediction]``: position of the system and of the cell, and code of the predicted label
        (``ABSTAINED`` and ``FAILED`` included). Each row is one planned prediction; a cell may have several
        of one system.
    label
        Int ``[cell]``: code of the native label.
    n_systems
        Number of systems.

    Returns
    -------
    numpy.ndarray
        Float ``[answer, system, cell]``.
    """
    answer = np.select([prediction == ABSTAINED, prediction == FAILED], [2, 3], prediction != label[cell])
    tally = np.zeros((len(ANSWERS), n_systems, len(label)))
    np.add.at(tally, (answer, system, cell), 1)
    return tally


def count_support(state: Array, weight: Array, answers: Array, label: Array, resolved: Array, support: Array) -> Counts:
    """Weighted counts behind the metrics, for one draw of the reference and of the participants.

    Parameters
    ----------
    state
        Int ``[cell]``: state of each cell in this draw.
    weight
        Float ``[cell]``: weight of the cell's participant in this draw; ones for the participants as
        observed.
    answers
        Float ``[answer, system, cell]`` from `tally_answers`.
    label
        Int ``[cell]``: code of the native label.
    resolved
        Bool ``[cell]``: whether the reference resolves the cell.
    support
        Int ``[label, state]``: 0 supported, 1 unsupported, 2 opposed.

    Returns
    -------
    Counts
        Each ``[system]``.
    """
    correct, incorrect, abstained, failed = answers
    # One product with the weights for what no draw of the states changes, one for what it does: here an audit
    # spends its time.
    settled = (correct + incorrect + abstained) * resolved + failed
    fixed = jnp.stack([answers.sum(0), settled, *answers, correct * ~resolved])
    evidence = jnp.asarray(support)[label, state]
    kinds = jnp.stack([(evidence == kind) & resolved for kind in (SUPPORTED, UNSUPPORTED, OPPOSED)])
    n, n_resolved, n_correct, n_incorrect, n_abstained, n_failed, n_correct_unresolved = fixed @ weight
    n_supported, n_unsupported, n_opposed = (kinds * weight) @ correct.T
    return Counts(
        planned=n,
        resolved=n_resolved,
        correct=n_correct,
        incorrect=n_incorrect,
        abstained=n_abstained,
        failed=n_failed,
        supported=n_supported,
        unsupported=n_unsupported,
        opposed=n_opposed,
        correct_unresolved=n_correct_unresolved,
    )


def support_metrics(counts: Counts) -> dict[str, Array]:
    """All quantities of the audit from the counts of one draw; a ratio over nothing is NaN.

    ``ucr`` is the unsupported-correct rate (U + D) / (N − R), an incidence per planned prediction;
    ``hit_caliber`` is (U + D) / (C − R_c), the share of resolved correct predictions that lack support.
    Abstaining or failing lowers ``ucr`` without improving support, so read both beside ``accuracy`` (C over
    answered), ``coverage`` (answered over N), ``abstention_rate``, ``failure_rate`` and
    ``supported_correct_rate`` S / (N − R).

    ``*_lower`` and ``*_upper`` count unresolved correct predictions as all supported and as all unsupported,
    over N and over C. Whatever the unresolved states are, the rate over all planned predictions lies between
    them. They always enclose ``hit_caliber``; ``ucr`` itself, whose denominator leaves out unresolved
    predictions that are wrong or abstained, can exceed ``ucr_upper``.

    The last six are shares of N and sum to one: ``correct_supported``, ``correct_unsupported``,
    ``correct_opposed``, ``correct_unresolved``, ``incorrect``, ``not_answered`` (abstained or failed).

    Parameters
    ----------
    counts
        From `count_support`, each ``[system]``.

    Returns
    -------
    dict
        Metric → float ``[system]``, in the order of ``METRICS``.

    Notes
    -----
    Source: EviDial (arXiv 2610.27541), §3.4 and §4.2.
    """
    lacking = counts.unsupported + counts.opposed
    lacking_at_most = lacking + counts.correct_unresolved
    answered = counts.correct + counts.incorrect
    return {
        "ucr": _ratio(lacking, counts.resolved),
        "hit_caliber": _ratio(lacking, lacking + counts.supported),
        "accuracy": _ratio(counts.correct, answered),
        "coverage": _ratio(answered, counts.planned),
        "abstention_rate": _ratio(counts.abstained, counts.planned),
        "failure_rate": _ratio(counts.failed, counts.planned),
        "supported_correct_rate": _ratio(counts.supported, counts.resolved),
        "ucr_lower": _ratio(lacking, counts.planned),
        "ucr_upper": _ratio(lacking_at_most, counts.planned),
        "hit_caliber_lower": _ratio(lacking, counts.correct),
        "hit_caliber_upper": _ratio(lacking_at_most, counts.correct),
        "correct_supported": _ratio(counts.supported, counts.planned),
        "correct_unsupported": _ratio(counts.unsupported, counts.planned),
        "correct_opposed": _ratio(counts.opposed, counts.planned),
        "correct_unresolved": _ratio(counts.correct_unresolved, counts.planned),
        "incorrect": _ratio(counts.incorrect, counts.planned),
        "not_answered": _ratio(counts.abstained + counts.failed, counts.planned),
    }


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Quotient, NaN over nothing; never divides by zero, so that debugging flags for NaN stay usable."""
    defined = denominator > 0
    return jnp.where(defined, numerator / jnp.where(defined, denominator, 1.0), jnp.nan)
