"""Distinct vote patterns: what the likelihood of a panel runs over instead of its cells."""

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
from scipy import sparse

from evidial_bayes.data.panel import Panel


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Patterns:
    """Cells that no likelihood can tell apart, once each, with the number of cells behind them.

    A pattern is a combination of votes, covariates and known state. Votes and covariates are stored once per
    distinct value, so that the cost of a likelihood follows them and not the number of cells. All fields are arrays
    and the class is a JAX pytree.

    Parameters
    ----------
    votes
        Float ``[vote_pattern, reader, category]``: how often each reader cast each category. A reader is a judge, or
        where emissions differ by stratum a judge within a stratum, stratum by stratum. Replicates of one judge are
        exchangeable given the state, so counts are all that a likelihood needs.
    design
        Float ``[design_row, effect]``: distinct rows of the covariates' design.
    vote_pattern, design_row
        Int ``[pattern]``: positions in ``votes`` and ``design``.
    known
        Int ``[pattern]``: state where it is known, else -1.
    constructed
        Bool ``[pattern]``: known by construction, so that prevalence does not apply.
    unit
        Int ``[pattern]``: unit that the pattern's cells belong to, 0 where cells of all units are pooled.
    count
        Float ``[pattern]``: number of cells.
    """

    votes: np.ndarray
    design: np.ndarray
    vote_pattern: np.ndarray
    design_row: np.ndarray
    known: np.ndarray
    constructed: np.ndarray
    unit: np.ndarray
    count: np.ndarray


def unique_patterns(
    panel: Panel, design: np.ndarray, *, stratum: np.ndarray | None = None, unit: np.ndarray | None = None
) -> tuple[Patterns, np.ndarray]:
    """Collapse the cells of a panel to their distinct patterns.

    Parameters
    ----------
    panel
        Votes and known states.
    design
        Float ``[cell, effect]``: covariates as numbers.
    stratum
        Int ``[cell]``: stratum within which judges are readers of their own; None: one stratum.
    unit
        Int ``[cell]``: cells of different units are told apart, whatever their votes; None: they are not.

    Returns
    -------
    patterns
        The distinct patterns, in the order of their first cell.
    pattern
        Int ``[cell]``: position of every cell's pattern.
    """
    n_cells, n_judges, n_categories = len(panel.cells), len(panel.coords["judge"]), len(panel.coords["category"])
    stratum = np.zeros(n_cells, np.int64) if stratum is None else stratum
    unit = np.zeros(n_cells, np.int64) if unit is None else unit
    n_readers = n_judges * (stratum.max(initial=0) + 1)
    reader = stratum[panel.vote_cell] * n_judges + panel.vote_judge
    column = reader * n_categories + panel.vote_category
    counts = sparse.csr_array(
        (np.ones(len(column)), (panel.vote_cell, column)),
        shape=(n_cells, n_readers * n_categories),
    )
    counts.sum_duplicates()
    # The sparse row as bytes: sorting dense rows would take cells × judges × categories of memory.
    rows = pd.Series(
        [
            counts.indices[a:b].tobytes() + counts.data[a:b].tobytes()
            for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
        ]
    )
    vote_pattern, _ = pd.factorize(rows)
    _, first_vote = np.unique(vote_pattern, return_index=True)
    design_row, first_design = _factorize_rows(design)
    keys = np.column_stack([vote_pattern, design_row, panel.known, panel.constructed, unit])
    pattern, first = _factorize_rows(keys)
    patterns = Patterns(
        votes=counts[first_vote].toarray().reshape(len(first_vote), n_readers, n_categories),
        design=design[first_design],
        vote_pattern=vote_pattern[first],
        design_row=design_row[first],
        known=panel.known[first],
        constructed=panel.constructed[first],
        unit=unit[first],
        count=np.bincount(pattern).astype(float),
    )
    return patterns, pattern


def _factorize_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code distinct rows by first appearance: the code of every row, and the first row of every code."""
    if rows.shape[1] == 0:
        return np.zeros(len(rows), dtype=np.int64), np.zeros(1, dtype=np.int64)
    code = pd.DataFrame(rows).groupby(list(range(rows.shape[1])), sort=False, dropna=False).ngroup().to_numpy()
    _, first = np.unique(code, return_index=True)
    return code, first
