"""The panel: codes, coordinates, the gate on judges, and a hash of the contents."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel, build_panel

CODEBOOK = Codebook.from_mapping(
    {
        "name": "small",
        "states": ["low", "high"],
        "categories": ["low", "high", "unsure"],
        "labels": ["no", "yes"],
        "supports": {"low": "no", "high": "yes"},
        "sufficient": ["low", "high"],
    }
)
CELLS = pd.DataFrame(
    {
        "cell_id": ["c3", "c1", "c2", "c4"],
        "participant_id": ["p2", "p1", "p2", "p3"],
        "known_state": ["", "high", "low", ""],
        "known_by": ["", "constructed", "", ""],
        "native_label": ["no", "", "yes", "no"],
    }
)
VOTES = pd.DataFrame(
    [
        ("c1", "b", "high"),
        ("c3", "b", "unsure"),
        ("c1", "a", "low"),
        ("c3", "a", "?"),
        ("c2", "a", "high"),
        ("c2", "b", ""),
        ("c1", "bad", "5"),
        ("c2", "bad", "low"),
        ("c3", "bad", ""),
    ],
    columns=["cell_id", "judge", "vote"],
)


def same(one: Panel, other: Panel) -> bool:
    names = ("vote_cell", "vote_judge", "vote_category", "known", "constructed", "participant", "n_votes")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
        and one.cells.equals(other.cells)
        and one.judges.equals(other.judges)
        and one.hash == other.hash
    )


def test_codes_worked_by_hand():
    panel = build_panel(VOTES, CELLS, CODEBOOK)
    # Cells keep their planned order c3, c1, c2, c4; kept judges are a, b; `bad` has 1 valid vote in 3.
    np.testing.assert_array_equal(panel.vote_cell, [0, 1, 1, 2])
    np.testing.assert_array_equal(panel.vote_judge, [1, 0, 1, 0])
    np.testing.assert_array_equal(panel.vote_category, [2, 0, 1, 1])
    np.testing.assert_array_equal(panel.n_votes, [1, 2, 1, 0])
    np.testing.assert_array_equal(panel.participant, [0, 1, 0, 2])
    np.testing.assert_array_equal(panel.known, [-1, 1, 0, -1])
    np.testing.assert_array_equal(panel.constructed, [False, True, False, False])
    for codes in (panel.vote_cell, panel.vote_judge, panel.vote_category, panel.n_votes, panel.known):
        assert codes.dtype == np.int64


def test_coordinates_are_named_indexes():
    panel = build_panel(VOTES, CELLS, CODEBOOK)
    coords = {name: list(index) for name, index in panel.coords.items()}
    assert coords == {
        "cell": ["c3", "c1", "c2", "c4"],
        "judge": ["a", "b"],
        "participant": ["p2", "p1", "p3"],
        "state": ["low", "high"],
        "category": ["low", "high", "unsure"],
    }
    assert all(isinstance(index, pd.Index) and index.name == name for name, index in panel.coords.items())
    assert list(panel.cells.columns) == [*("participant_id", "native_label", "source", "dimension", "dimension_group")]
    assert repr(panel) == "Panel(4 cells, 3 participants, 2 judges, 4 votes, 2 states)"


def test_every_judge_is_counted_and_bad_ones_are_excluded_by_name():
    judges = build_panel(VOTES, CELLS, CODEBOOK).judges
    assert judges.index.name == "judge"
    counts = judges[["n_votes", "n_valid", "n_invalid", "n_missing"]].to_dict("index")
    assert counts == {
        "a": {"n_votes": 3, "n_valid": 2, "n_invalid": 1, "n_missing": 0},
        "b": {"n_votes": 3, "n_valid": 2, "n_invalid": 0, "n_missing": 1},
        "bad": {"n_votes": 3, "n_valid": 1, "n_invalid": 1, "n_missing": 1},
    }
    np.testing.assert_allclose(judges["valid_share"], [2 / 3, 2 / 3, 1 / 3])
    assert judges["excluded"].to_dict() == {"a": False, "b": False, "bad": True}
    assert judges["judge_family"].to_dict() == {"a": "a", "b": "b", "bad": "bad"}


def test_the_gate_is_a_choice():
    open_gate = build_panel(VOTES, CELLS, CODEBOOK, min_valid_share=0)
    assert list(open_gate.coords["judge"]) == ["a", "b", "bad"]
    assert len(open_gate.vote_cell) == 5


def test_a_judge_without_any_valid_vote_is_excluded_whatever_the_gate():
    votes = VOTES.assign(vote=VOTES["vote"].where(VOTES["judge"] != "bad", "?"))
    assert list(build_panel(votes, CELLS, CODEBOOK, min_valid_share=0).coords["judge"]) == ["a", "b"]


def test_families_are_read_per_judge():
    family = VOTES["judge"].map({"a": "x", "b": "", "bad": "x"})
    judges = build_panel(VOTES.assign(judge_family=family), CELLS, CODEBOOK).judges
    assert judges["judge_family"].to_dict() == {"a": "x", "b": "b", "bad": "x"}


def test_replicates_are_separate_votes_of_one_judge():
    again = pd.DataFrame([("c1", "a", "high"), ("c4", "a", "low")], columns=VOTES.columns)
    votes = pd.concat([VOTES.assign(replicate="1"), again.assign(replicate="2")], ignore_index=True)
    panel = build_panel(votes, CELLS, CODEBOOK)
    of_cell = panel.vote_cell == 1
    np.testing.assert_array_equal(panel.vote_judge[of_cell], [0, 0, 1])
    np.testing.assert_array_equal(panel.vote_category[of_cell], [0, 1, 1])
    np.testing.assert_array_equal(panel.n_votes, [1, 3, 1, 1])


def test_arrays_are_read_only():
    panel = build_panel(VOTES, CELLS, CODEBOOK)
    with pytest.raises(ValueError, match="read-only"):
        panel.vote_cell[0] = 1


@pytest.mark.parametrize(
    ("votes", "share", "message"),
    [
        (VOTES, 50, r"min_valid_share: 50 is no share; allowed: 0 to 1"),
        (VOTES, float("nan"), r"min_valid_share: nan is no share; allowed: 0 to 1"),
        (
            VOTES,
            0.9,
            r"votes: 0 of 3 judges left by the gate \(.* at least 0\.9\), but two are needed: "
            r"'a' 2 of 3 votes valid; .*Valid votes are: low, high, unsure",
        ),
        (VOTES[VOTES["judge"] != "b"], 0.5, r"votes: 1 of 2 judges left by the gate"),
        (VOTES[VOTES["judge"] == "a"], 0.5, r"votes, column `judge`: one judge only \('a'\)"),
        (
            VOTES.assign(vote="?"),
            0.5,
            r"votes, column `vote`: no vote is in the codebook 'small'; found '\?'",
        ),
        (
            VOTES.replace("c2", "c02"),
            0.5,
            r"(?s)votes, rows 4, 5 and 7, column `cell_id`: cells has no cell 'c02'\. Did you mean 'c2'\?",
        ),
    ],
)
def test_what_makes_no_panel(votes, share, message):
    with pytest.raises(InputError, match=message):
        build_panel(votes, CELLS, CODEBOOK, min_valid_share=share)


def test_hash_sees_every_part_of_the_contents():
    panels = [
        build_panel(VOTES, CELLS, CODEBOOK),
        build_panel(VOTES.replace("unsure", "low"), CELLS, CODEBOOK),
        build_panel(VOTES, CELLS.replace("p3", "p1"), CODEBOOK),
        build_panel(VOTES, CELLS.replace("constructed", "sampled"), CODEBOOK),
        build_panel(VOTES, CELLS.iloc[[1, 0, 2, 3]], CODEBOOK),
        build_panel(VOTES, CELLS.assign(age=[30, 40, 50, 60]), CODEBOOK),
        build_panel(VOTES, CELLS, CODEBOOK, min_valid_share=0),
        build_panel(VOTES.iloc[:-1], CELLS, CODEBOOK),
    ]
    assert len({panel.hash for panel in panels}) == len(panels)


def test_hash_is_the_same_in_another_process(tmp_path):
    panel = build_panel(VOTES, CELLS, CODEBOOK)
    file = tmp_path / "panel.pickle"
    file.write_bytes(pickle.dumps(build_panel(VOTES, CELLS, CODEBOOK)))
    code = f"import pickle, pathlib; print(pickle.loads(pathlib.Path({str(file)!r}).read_bytes()).hash)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == panel.hash
    assert len(panel.hash) == 64


names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6).filter(str.strip)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_order_of_rows_leaves_no_trace_and_ids_come_through(data):
    ids = data.draw(st.lists(names, min_size=1, max_size=6, unique=True), label="cells")
    judges = data.draw(st.lists(names, min_size=2, max_size=4, unique=True), label="judges")
    vote = st.sampled_from(["low", "high", "unsure", "?", ""])
    rows = [(cell, judge, data.draw(vote)) for cell in ids for judge in judges]
    # Two judges with a valid vote each, so that the table makes a panel.
    rows[:2] = [(ids[0], judges[0], "low"), (ids[0], judges[1], "high")]
    votes = pd.DataFrame(rows, columns=["cell_id", "judge", "vote"])
    cells = pd.DataFrame({"cell_id": ids, "participant_id": ids})
    panel = build_panel(votes, cells, CODEBOOK, min_valid_share=0)

    order = data.draw(st.permutations(range(len(votes))), label="order")
    assert same(panel, build_panel(votes.iloc[order], cells, CODEBOOK, min_valid_share=0))

    assert list(panel.coords["cell"]) == ids
    assert set(panel.judges.index) == set(judges)
    read = {
        (panel.coords["cell"][c], panel.coords["judge"][j], CODEBOOK.categories[v])
        for c, j, v in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True)
    }
    assert read == {row for row in rows if row[2] in CODEBOOK.categories}
