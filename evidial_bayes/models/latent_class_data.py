"""A panel as the latent class model sees it."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
import pandas as pd

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.panel import Panel
from evidial_bayes.data.patterns import Patterns, unique_patterns
from evidial_bayes.models.dependence import Dependence, scores
from evidial_bayes.models.design import prevalence_design
from evidial_bayes.models.tally import Tally, tally
from evidial_bayes.models.tilted import Tilts, tilts
from evidial_bayes.models.vote_groups import VoteGroup, judge_families, vote_groups
from evidial_bayes.models.vote_product import Space

# Products of more probabilities than this could underflow in float32.
MOST_JUDGES_IN_PROBABILITY_SPACE = 6


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["patterns", "groups", "tilts", "tally", "reads", "anchors", "shared_out"],
    meta_fields=["lead", "n_units", "space"],
)
@dataclass(frozen=True, eq=False)
class LatentClassData:
    """Votes, covariates and known states as arrays.

    Parameters
    ----------
    patterns
        Distinct votes, covariates and known states.
    groups
        The same votes by judge family.
    tilts
        What the votes say of the cell's effect, where that is a score; None where it takes every vote.
    tally
        Numbers of cells by votes and covariates; None where participants are told apart, or covariates are many.
    reads
        Float ``[state, category]``: one-hot category that a faultless judge casts in each state.
    anchors
        Float ``[*lead, state, category]``: votes on cells whose state is known by construction.
    shared_out
        Float ``[*lead, state, category]``: all votes, each shared out to the states that its cell's votes name, or to
        the cell's known state.
    lead
        Names and sizes of the dims of an emission before the state: judge, or stratum and judge.
    n_units
        Number of participants that patterns are told apart by; 1 where they are pooled.
    space
        Where the product over judges is taken: ``probability``, which is fastest for a few judges with one vote a cell
        each, or ``log``, which neither underflows nor minds replicates.
    """

    patterns: Patterns
    groups: tuple[VoteGroup, ...]
    tilts: Tilts | None
    tally: Tally | None
    reads: np.ndarray
    anchors: np.ndarray
    shared_out: np.ndarray
    lead: tuple[tuple[str, int], ...]
    n_units: int
    space: Space


def latent_class_data(
    panel: Panel, prevalence_formula: str, stratum: str | None, *, units: bool, tilted: Dependence | None = None
) -> tuple[LatentClassData, np.ndarray, dict[str, pd.Index]]:
    """Collapse a panel to distinct patterns.

    Parameters
    ----------
    panel
        Votes and known states.
    prevalence_formula
        Covariates of the prevalence.
    stratum
        Column of the table of cells by which judges have emissions of their own; None: none.
    units
        Tell participants apart.
    tilted
        How votes depend on each other, where this goes through a score of the votes.

    Returns
    -------
    data
        Arrays.
    pattern
        Int ``[cell]``: position of every cell's pattern.
    labels
        Labels along every dim that the model may have.

    Raises
    ------
    InputError
        The formula or the stratum does not fit the table of cells.
    """
    design, effect = prevalence_design(prevalence_formula, panel)
    families, family = judge_families(panel)
    labels = {
        **panel.coords,
        "effect": effect,
        "judge_family": pd.Index(families, name="judge_family"),
        "apparent_state": panel.coords["state"].rename("apparent_state"),
    }
    n_judges, n_categories = len(panel.coords["judge"]), len(panel.coords["category"])
    lead: tuple[tuple[str, int], ...] = (("judge", n_judges),)
    of_cell = None
    if stratum is not None:
        of_cell, labels["stratum"] = cell_strata(stratum, panel)
        lead = (("stratum", len(labels["stratum"])), *lead)
    patterns, pattern = unique_patterns(panel, design, stratum=of_cell, unit=panel.participant if units else None)
    anchors = np.zeros((*(size for _, size in lead), len(panel.codebook.states), n_categories))
    on_anchor = panel.constructed[panel.vote_cell]
    cell, judge, category = panel.vote_cell[on_anchor], panel.vote_judge[on_anchor], panel.vote_category[on_anchor]
    place = (judge, panel.known[cell], category)
    np.add.at(anchors, place if of_cell is None else (of_cell[cell], *place), 1.0)
    reads = np.eye(n_categories)[panel.codebook.reading]
    few = patterns.votes.shape[1] <= MOST_JUDGES_IN_PROBABILITY_SPACE
    once = patterns.votes.sum(-1).max(initial=0) <= 1
    data = LatentClassData(
        patterns=patterns,
        groups=vote_groups(patterns, family),
        tilts=None if tilted is None else tilts(patterns, np.asarray(scores(tilted, reads))),
        tally=None if units else tally(patterns, len(reads)),
        reads=reads,
        anchors=anchors,
        shared_out=_shared_out(patterns, reads).reshape(anchors.shape),
        lead=lead,
        n_units=len(panel.coords["participant"]) if units else 1,
        # A participant's effect is summed out after the logs of its cells are: no node of it may underflow.
        space="probability" if few and once and not units else "log",
    )
    return data, pattern, labels


def _shared_out(patterns: Patterns, reads: np.ndarray) -> np.ndarray:
    """Votes ``[reader, state, category]``, each counted for states in the shares that its cell's votes name them."""
    named = patterns.votes.sum(1) @ reads.T
    total = named.sum(1, keepdims=True)
    share = np.where(total > 0, named / np.where(total > 0, total, 1), 0.0)[patterns.vote_pattern]
    share = np.where(patterns.known[:, None] >= 0, np.eye(len(reads))[patterns.known], share)
    by_vote_pattern = np.zeros((len(patterns.votes), len(reads)))
    np.add.at(by_vote_pattern, patterns.vote_pattern, share * patterns.count[:, None])
    return np.einsum("vk,vjc->jkc", by_vote_pattern, patterns.votes)


def cell_strata(column: str, panel: Panel) -> tuple[np.ndarray, pd.Index]:
    """Stratum of every cell by a column of the table of cells, and the strata's names in sorted order.

    Raises
    ------
    InputError
        The table has no such column, or a cell has no value in it.
    """
    cells = panel.cells
    if column not in cells:
        names = ", ".join(map(str, cells.columns))
        raise InputError(
            f"model.stratum names '{column}', which the table of cells does not have."
            f"{suggest(column, map(str, cells.columns))} Columns: {names}."
        )
    if (missing := cells[column].isna()).any():
        raise InputError(
            f"model.stratum: '{column}' is empty for {int(missing.sum())} cells, the first is "
            f"'{cells.index[missing.argmax()]}'; every cell needs a value."
        )
    values = cells[column].astype(str)
    names = pd.Index(sorted(values.unique()), name="stratum")
    return names.get_indexer(values), names
