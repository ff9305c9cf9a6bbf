"""References by counting votes: strict plurality and the one-hot mean."""

import numpy as np
from numpy.typing import NDArray

from evidial_bayes.data.panel import Panel
from evidial_bayes.reference.base import Reference


def plurality(panel: Panel) -> Reference:
    """State that the most frequent vote of a cell names, all or nothing.

    Strict: a tie for the most votes, a cell without a vote, and a category that no state or more than one
    state reads as are unresolved. Their probability is spread evenly over the states in question, so that
    they weigh no state by accident of order.

    Parameters
    ----------
    panel
        Votes and cells.

    Returns
    -------
    Reference
        ``plurality``, one draw, one-hot where resolved.

    Notes
    -----
    Source: EviDial (arXiv 2610.27541), App. F.
    """
    counts = _count_all(panel)
    most = counts == np.maximum(counts.max(1, keepdims=True), 1)
    share = _share(panel, most)
    named_once = (most.sum(1) == 1) & ((share > 0).sum(1) == 1)
    return _reference("plurality", panel, share, named_once)


def vote_share(panel: Panel) -> Reference:
    """Mean of a cell's one-hot votes, read as probabilities of the states.

    A category that several states read as shares its votes among them evenly; one that no state reads as
    names no state and is left out of the mean. A cell is resolved when one state has the largest share alone.

    Parameters
    ----------
    panel
        Votes and cells.

    Returns
    -------
    Reference
        ``vote_share``, one draw; cells without a vote that names a state are uniform and unresolved.

    Notes
    -----
    With three votes or fewer its most probable state is that of `plurality`.
    Source: EviDial (arXiv 2610.27541), App. F.
    """
    share = _share(panel, _count_all(panel))
    largest = share == share.max(1, keepdims=True)
    return _reference("vote_share", panel, share, largest.sum(1) == 1)


def count_votes(panel: Panel, group: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count votes per category, by group of judges.

    Parameters
    ----------
    panel
        Votes.
    group
        Int ``[judge]``: group of every judge, from 0 on.

    Returns
    -------
    numpy.ndarray
        Int ``[group, cell, category]``.
    """
    counts = np.zeros((group.max() + 1, len(panel.cells), len(panel.codebook.categories)), np.int64)
    np.add.at(counts, (group[panel.vote_judge], panel.vote_cell, panel.vote_category), 1)
    return counts


def _count_all(panel: Panel) -> NDArray[np.int64]:
    """Votes per category; int ``[cell, category]``."""
    return count_votes(panel, np.zeros(len(panel.coords["judge"]), np.int64))[0]


def _share(panel: Panel, mass: NDArray) -> NDArray[np.float64]:
    """Share ``[cell, state]``: mass ``[cell, category]`` split evenly among the states that read so."""
    reading = panel.codebook.reading
    # A division, not a product with the inverse: shares that are equal stay equal in floating point.
    return mass[:, reading] / np.bincount(reading)[reading]


def _reference(name: str, panel: Panel, share: NDArray[np.float64], resolved: NDArray[np.bool_]) -> Reference:
    total = share.sum(1, keepdims=True)
    probability = np.where(total > 0, share / np.where(total > 0, total, 1), 1 / share.shape[1])
    conditional, pattern = np.unique(probability, axis=0, return_inverse=True)
    return Reference(
        name=name,
        codebook=panel.codebook,
        cells=panel.coords["cell"],
        conditional=conditional[None],
        pattern=pattern.ravel(),
        resolved=resolved,
        n_votes=panel.n_votes,
    )
