"""Collapsing cells to distinct patterns against dictionaries of plain keys."""

from collections import Counter

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import build_panel
from evidial_bayes.data.patterns import unique_patterns

BOOK = Codebook.from_mapping({"name": "two", "states": ["no", "yes"], "categories": ["no", "yes", "unsure"]})


def build(seed, n_cells, *, n_judges=3, n_replicates=2):
    """Few judges on many cells, so that patterns come up again: votes may be missing or repeated."""
    rng = np.random.default_rng(seed)
    ids = [f"u{i:03d}" for i in range(n_cells)]
    known = rng.choice(["", "", "", "no", "yes"], size=n_cells)
    cells = pd.DataFrame(
        {
            "cell_id": ids,
            "participant_id": [f"p{i}" for i in rng.integers(0, 3, n_cells)],
            "known_state": known,
            "known_by": [rng.choice(["sampled", "constructed"]) if state else "" for state in known],
        }
    )
    rows = [
        (cell, f"j{j}", rng.choice(BOOK.categories), str(r))
        for cell in ids
        for j in range(n_judges)
        for r in range(n_replicates if j == 0 else 1)
        if rng.random() < 0.6
    ]
    # Two judges at least pass the gate, whatever the seed.
    rows += [(ids[0], f"j{j}", "no", "9") for j in range(n_judges)]
    votes = pd.DataFrame(rows, columns=["cell_id", "judge", "vote", "replicate"])
    return build_panel(votes, cells, BOOK)


def counts_of(panel, stratum):
    """Votes ``[cell, reader, category]``, counted one by one; readers are judges within strata, stratum by stratum."""
    n_judges = len(panel.coords["judge"])
    n_strata = 1 if stratum is None else max(stratum) + 1
    counts = np.zeros((len(panel.cells), n_strata * n_judges, 3))
    for cell, judge, category in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True):
        counts[cell, (0 if stratum is None else stratum[cell]) * n_judges + judge, category] += 1
    return counts


def layout(seed, n_cells, n_effects, *, by_stratum, by_unit):
    rng = np.random.default_rng(seed + 1)
    panel = build(seed, n_cells)
    design = rng.choice([-0.5, 0.25], size=(n_cells, n_effects))
    stratum = np.append(1, rng.integers(0, 2, n_cells - 1)) if by_stratum else None
    return panel, design, stratum, panel.participant if by_unit else None


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_cells=st.integers(1, 60),
    n_effects=st.integers(0, 2),
    by_stratum=st.booleans(),
    by_unit=st.booleans(),
)
def test_patterns_are_the_distinct_cells_in_order_with_their_numbers(seed, n_cells, n_effects, by_stratum, by_unit):
    panel, design, stratum, unit = layout(seed, n_cells, n_effects, by_stratum=by_stratum, by_unit=by_unit)
    patterns, pattern = unique_patterns(panel, design, stratum=stratum, unit=unit)
    counts = counts_of(panel, stratum)
    units = np.zeros(n_cells, int) if unit is None else unit
    # Each cell finds itself again in its pattern.
    vote, row = patterns.vote_pattern[pattern], patterns.design_row[pattern]
    np.testing.assert_array_equal(patterns.votes[vote], counts)
    np.testing.assert_array_equal(patterns.design[row], design)
    np.testing.assert_array_equal(patterns.known[pattern], panel.known)
    np.testing.assert_array_equal(patterns.constructed[pattern], panel.constructed)
    np.testing.assert_array_equal(patterns.unit[pattern], units)
    # Cells are of one pattern if and only if nothing tells them apart; patterns are in the order of first cells.
    keys = [
        (counts[i].tobytes(), design[i].tobytes(), panel.known[i], panel.constructed[i], units[i])
        for i in range(n_cells)
    ]
    order = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    np.testing.assert_array_equal(pattern, [order[key] for key in keys])
    number = Counter(keys)
    np.testing.assert_array_equal(patterns.count, [number[key] for key in order])
    assert patterns.count.dtype == float
    # Votes and covariates are stored once.
    assert len(np.unique(patterns.votes, axis=0)) == len(patterns.votes)
    assert len(patterns.design) == (len(np.unique(design, axis=0)) if n_effects else 1)


def test_all_cells_of_one_kind_are_one_pattern():
    cells = pd.DataFrame({"cell_id": ["a", "b", "c"], "participant_id": ["p", "p", "q"]})
    votes = pd.DataFrame(
        [(cell, judge, "yes") for cell in "abc" for judge in ("j0", "j1")], columns=["cell_id", "judge", "vote"]
    )
    panel = build_panel(votes, cells, BOOK)
    patterns, pattern = unique_patterns(panel, np.zeros((3, 0)))
    assert (patterns.count.tolist(), pattern.tolist()) == ([3.0], [0, 0, 0])
    patterns, pattern = unique_patterns(panel, np.zeros((3, 0)), unit=panel.participant)
    assert (patterns.count.tolist(), pattern.tolist(), patterns.unit.tolist()) == ([2.0, 1.0], [0, 0, 1], [0, 1])
    assert len(patterns.votes) == 1
    patterns, pattern = unique_patterns(panel, np.zeros((3, 0)), stratum=np.array([0, 1, 0]))
    assert (patterns.count.tolist(), pattern.tolist(), patterns.votes.shape) == ([2.0, 1.0], [0, 1, 0], (2, 4, 3))
    # Readers of the first stratum, then those of the second.
    assert patterns.votes[:, :, 1].tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_votes_leaves_no_trace_and_replicates_are_counted(seed):
    panel = build(seed, 40, n_replicates=3)
    patterns, _ = unique_patterns(panel, np.zeros((40, 0)))
    assert patterns.votes.sum(-1).max() > 1
    assert patterns.votes.sum((1, 2))[patterns.vote_pattern] @ patterns.count == len(panel.vote_cell)


def test_patterns_are_a_tree_of_arrays():
    panel = build(3, 20)
    patterns, _ = unique_patterns(panel, np.zeros((20, 1)))
    leaves = jax.tree.leaves(patterns)
    assert len(leaves) == 8
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
