"""Evidence of judge families under emissions that are estimated once, from vote shares and known cells.

Fitted to convergence on many dependent votes, latent classes drift away from what people call the states. Emissions
that are counted once, with the vote share of a cell standing for its state, cannot drift; and a handful of known cells,
which count for more, pull them towards the truth.
"""

from dataclasses import dataclass
from typing import final

import jax
import numpy as np
import pandas as pd

from evidial_bayes.data.panel import Panel
from evidial_bayes.models.priors import check_positive
from evidial_bayes.reference.voting import count_votes

# Share of a vote share that is spread evenly, so that a state which nobody votes for stays possible.
SMOOTHING = 0.02


@final
@jax.tree_util.register_static
@dataclass(frozen=True)
class OnePass:
    """Pseudo-counts and weights of the emissions.

    Parameters
    ----------
    diagonal, off_diagonal
        Pseudo-counts of the category that a state reads as, and of every other one.
    weight
        What a cell without a known state counts for; a known cell counts for one.

    Raises
    ------
    InputError
        A number that is not positive.
    """

    diagonal: float = 8.0
    off_diagonal: float = 1.0
    weight: float = 0.1

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_positive(self, "diagonal", "off_diagonal", "weight")

    def evidence(
        self, panel: Panel, share: np.ndarray, known: np.ndarray, grouping: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log probability of each source's votes on every cell given its state.

        Parameters
        ----------
        panel
            Votes.
        share
            Float ``[cell, state]``: vote shares.
        known
            Int ``[cell]``: state where it is known, else −1.
        grouping
            Float ``[source, judge]``: which judges make a source.

        Returns
        -------
        tuple of numpy.ndarray
            ``[source, cell, state]`` of all cells; and ``[source, known_cell, state]`` of those with a known state, in
            order, whose own votes are left out of the emissions that judge them: or they would look surer than others.
        """
        n_states, n_categories = share.shape[1], len(panel.codebook.categories)
        votes = count_votes(panel, np.arange(len(panel.coords["judge"])))  # [judge, cell, category]
        is_known = known >= 0
        state = np.where(is_known[:, None], np.eye(n_states)[known], self.weight * share)
        reads = np.eye(n_categories)[panel.codebook.reading]
        counts = self.off_diagonal + (self.diagonal - self.off_diagonal) * reads
        counts = counts + np.einsum("uk,juc->jkc", state, votes)
        out = np.einsum("sj,juc,jkc->suk", grouping, votes, _log_means(counts), optimize=True)
        left_out = np.zeros((len(grouping), int(is_known.sum()), n_states))
        for place, u in enumerate(np.flatnonzero(is_known)):
            others = counts.copy()
            others[:, known[u]] -= votes[:, u]
            left_out[:, place] = grouping @ np.einsum("jc,jkc->jk", votes[:, u], _log_means(others))
        return out, left_out


def family_sources(panel: Panel) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Which families and which judges make a source of evidence, and the sources' names.

    A family of several judges is a source of its own. Single judges make one together: each by itself says too little
    for an exponent of its own to be learned.

    Returns
    -------
    tuple
        Float ``[source, judge_family]``, float ``[source, judge]``, and the names.
    """
    family = panel.judges.loc[panel.coords["judge"], "judge_family"].astype(str)
    code, names = pd.factorize(family)
    size = np.bincount(code)
    several, single = np.flatnonzero(size > 1), np.flatnonzero(size == 1)
    by_family = np.eye(len(size))[several]
    if len(single):
        by_family = np.vstack([by_family, np.eye(len(size))[single].sum(0)])
    labels = [str(names[one]) for one in several] + (["single judges"] if len(single) else [])
    return by_family, by_family[:, code], labels


def vote_shares(panel: Panel) -> dict[str, np.ndarray]:
    """Smoothed vote shares ``[cell, state]``: ``vote_share`` of all votes, ``family_shares`` as the families' mean."""
    family = pd.factorize(panel.judges.loc[panel.coords["judge"], "judge_family"])[0]
    counts = count_votes(panel, family)
    return {
        "vote_share": _smoothed(counts.sum(0), panel)[0],
        "family_shares": _family_mean(counts, panel),
    }


def _family_mean(counts: np.ndarray, panel: Panel) -> np.ndarray:
    """Mean over the families that voted on a cell."""
    shares, voted = zip(*(_smoothed(of_family, panel) for of_family in counts), strict=True)
    weight = np.array(voted, dtype=float)[..., None]
    total = (np.array(shares) * weight).sum(0)
    n_states = total.shape[1]
    return np.where(weight.sum(0) > 0, total / np.maximum(weight.sum(0), 1.0), 1 / n_states)


def _smoothed(counts: np.ndarray, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed shares ``[cell, state]`` of votes ``[cell, category]``, and which cells have any."""
    reading = panel.codebook.reading
    share = counts[:, reading] / np.bincount(reading)[reading]
    total, n_states = share.sum(1, keepdims=True), share.shape[1]
    share = np.where(total > 0, share / np.where(total > 0, total, 1), 1 / n_states)
    return (1 - SMOOTHING) * share + SMOOTHING / n_states, total[:, 0] > 0


def _log_means(counts: np.ndarray) -> np.ndarray:
    return np.log(counts / counts.sum(-1, keepdims=True))
