"""The tables at the door: what comes through unchanged, and what each malformed table says."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.data.tables import (
    check_cells,
    check_predictions,
    check_votes,
    read_cells,
    read_predictions,
    read_votes,
)

FOLDER = Path(__file__).parents[2] / "conf" / "codebook"
EVIDIAL, FACT_CHECK = (
    Codebook.from_mapping(yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))
    for name in ("evidial", "fact_check")
)
VOTES = """\
cell_id,judge,vote,judge_family
c1,a,absent,x
c1,b,partial,x
c2,a,absent,x
c2,b,sufficient_positive,x
"""
CELLS = """\
cell_id,participant_id,source,dimension,native_score,native_label,split,known_state,known_by
c1,p1,PDCH,fatigue,0,negative,dev,,
c2,p1,PDCH,anhedonia,1.5,positive,dev,partial,constructed
c3,p2,EDAIC,fatigue,,,test,absent,
"""
PREDICTIONS = """\
cell_id,model,method,prediction
c1,m,direct,negative
c2,m,direct,abstain
c1,m,cot,failed
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def swapped(content: str, old: str, new: str) -> str:
    assert old in content
    return content.replace(old, new)


# ------------------------------------------------------------------ what comes through


def test_votes_come_through_with_the_lines_of_the_file(tmp_path):
    path = write(tmp_path, "votes.csv", VOTES)
    votes = read_votes(path, EVIDIAL)
    assert list(votes.columns) == ["cell_id", "judge", "vote", "judge_family"]
    assert votes.index.tolist() == [2, 3, 4, 5]
    assert votes.index.name == "line"
    assert votes.attrs["file"] == str(path)


def test_cells_are_filled_from_the_codebook(tmp_path):
    cells = read_cells(write(tmp_path, "cells.csv", CELLS), EVIDIAL)
    assert cells["dimension_group"].tolist() == ["somatic", "mood", "somatic"]
    np.testing.assert_array_equal(cells["native_score"], [0, 1.5, np.nan])
    assert cells["native_score"].dtype == np.float64
    assert cells["native_label"].isna().tolist() == [False, False, True]
    assert cells["known_by"].fillna("").tolist() == ["", "constructed", "sampled"]


def test_the_smallest_cells_table(tmp_path):
    cells = read_cells(write(tmp_path, "cells.csv", "cell_id,participant_id\n1,1\n"), EVIDIAL)
    assert cells.iloc[0].to_dict() == {
        **{"cell_id": "1", "participant_id": "1"},
        **{"source": "all", "dimension": "all", "dimension_group": "all"},
    }


def test_a_group_in_the_table_goes_before_the_codebook():
    cells = pd.DataFrame({"cell_id": ["a", "b", "c"], "participant_id": "p", "dimension": ["x", "y", "z"]})
    cells["dimension_group"] = ["g", "", "g"]
    assert check_cells(cells, FACT_CHECK)["dimension_group"].tolist() == ["g", "y", "g"]


def test_ids_and_votes_that_look_like_something_else_stay_text(tmp_path):
    codebook = Codebook.from_mapping({"name": "odd", "states": ["True", "NA", "3", "1e3", "null"]})
    odd = ["007", "True", "NA", "1.0", "null", "-0", "1e3", "Inf", "2024-01-01", " x "]
    rows = [f"{cell},{judge},{vote}" for cell in odd for judge, vote in [("a@b/c#1:2|3", "NA"), ("007", "3")]]
    votes = read_votes(write(tmp_path, "votes.csv", "\n".join(["cell_id,judge,vote", *rows])), codebook)
    cells = read_cells(
        write(tmp_path, "cells.csv", "\n".join(["cell_id,participant_id", *(f"{o},{o}" for o in odd)])),
        codebook,
    )
    assert cells["cell_id"].tolist() == cells["participant_id"].tolist() == odd
    panel = build_panel(votes, cells, codebook)
    assert list(panel.coords["judge"]) == ["007", "a@b/c#1:2|3"]
    assert list(panel.coords["cell"]) == odd
    np.testing.assert_array_equal(panel.vote_category, [2, 1] * len(odd))


def test_an_empty_vote_is_missing_and_an_unknown_one_is_kept(tmp_path):
    content = swapped(VOTES, "c1,a,absent", "c1,a,").replace("c2,a,absent", "c2,a,Absent")
    votes = read_votes(write(tmp_path, "votes.csv", content), EVIDIAL)
    assert votes["vote"].isna().tolist() == [True, False, False, False]
    assert votes["vote"].iloc[2] == "Absent"
    cells = check_cells(pd.DataFrame({"cell_id": ["c1", "c2"], "participant_id": "p"}), EVIDIAL)
    votes = pd.concat([votes, votes.assign(judge="c", vote="absent").iloc[::2]])
    judges = build_panel(votes, cells, EVIDIAL).judges
    assert judges.loc["a", ["n_valid", "n_invalid", "n_missing"]].tolist() == [0, 1, 1]
    assert judges["excluded"].to_dict() == {"a": True, "b": False, "c": False}


def test_commas_quotes_line_breaks_and_other_scripts_in_fields(tmp_path):
    content = 'cell_id,participant_id,topic\n"a,1",張三,"two\nlines"\n\n"b ""2""",Zoë,x\n'
    path = write(tmp_path, "cells.csv", content)
    cells = read_cells(path, EVIDIAL)
    assert cells["cell_id"].tolist() == ["a,1", 'b "2"']
    assert cells["participant_id"].tolist() == ["張三", "Zoë"]
    assert cells["topic"].tolist() == ["two\nlines", "x"]
    # The first row takes lines 2 and 3, line 4 is blank.
    assert cells.index.tolist() == [2, 5]


@pytest.mark.parametrize("encode", [lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n"), str.rstrip])
def test_byte_order_mark_windows_line_ends_and_no_final_line_end(tmp_path, encode):
    votes = read_votes(write(tmp_path, "votes.csv", encode(VOTES)), EVIDIAL)
    pd.testing.assert_frame_equal(votes, read_votes(write(tmp_path, "plain.csv", VOTES), EVIDIAL))


def test_compressed_and_parquet_files_hold_the_same_table(tmp_path):
    plain = read_votes(write(tmp_path, "votes.csv", VOTES), EVIDIAL)
    packed = read_votes(write(tmp_path, "votes.csv.gz", gzip.compress(VOTES.encode())), EVIDIAL)
    pd.testing.assert_frame_equal(packed, plain)
    plain.set_index("cell_id").astype({"judge": "category"}).to_parquet(tmp_path / "votes.parquet")
    parquet = read_votes(tmp_path / "votes.parquet", EVIDIAL)
    assert parquet.index.tolist() == [1, 2, 3, 4]
    assert parquet.index.name == "row"
    columns = list(plain.columns)
    pd.testing.assert_frame_equal(parquet[columns].reset_index(drop=True), plain.reset_index(drop=True))


def test_typed_parquet_columns_become_the_text_a_person_would_write(tmp_path):
    codebook = Codebook.from_mapping({"name": "typed", "states": ["1", "2", "True", "2.5"]})
    table = pd.DataFrame(
        {
            "cell_id": np.array([1, 1, 2, 2, 3, 3], dtype=np.int32),
            "judge": [True, False, True, False, True, False],
            "vote": [1.0, 2.0, np.nan, 2.5, 1.0, 2.0],
            "replicate": pd.array([1, None, 1, 1, 1, 1], dtype="Int64"),
        }
    )
    table.to_parquet(tmp_path / "votes.parquet")
    for votes in (read_votes(tmp_path / "votes.parquet", codebook), check_votes(table, codebook)):
        assert votes["cell_id"].tolist() == ["1", "1", "2", "2", "3", "3"]
        assert votes["judge"].tolist() == ["True", "False"] * 3
        assert votes["vote"].fillna("").tolist() == ["1", "2", "", "2.5", "1", "2"]
        assert votes["replicate"].fillna("").tolist() == ["1", "", "1", "1", "1", "1"]


def test_covariates_of_plain_numbers_are_numeric_and_all_others_text(tmp_path):
    content = (
        "cell_id,participant_id,age,words,site,code,flag,tweet\n"
        "c1,p1,30,1.5e2,1,007,True,12345678901234567\n"
        "c2,p2,,-3,NA,008,False,12345678901234568\n"
    )
    cells = read_cells(write(tmp_path, "cells.csv", content), EVIDIAL)
    np.testing.assert_array_equal(cells["age"], [30, np.nan])
    np.testing.assert_array_equal(cells["words"], [150, -3])
    assert cells[["site", "code", "flag", "tweet"]].to_numpy().tolist() == [
        ["1", "007", "True", "12345678901234567"],
        ["NA", "008", "False", "12345678901234568"],
    ]


def test_other_columns_of_votes_and_the_nameless_index_column_are_ignored(tmp_path):
    frame = pd.read_csv(write(tmp_path, "plain.csv", VOTES)).assign(rationale="said, so")
    frame.to_csv(tmp_path / "votes.csv")
    assert list(read_votes(tmp_path / "votes.csv", EVIDIAL).columns) == [
        "cell_id",
        "judge",
        "vote",
        "judge_family",
    ]


def test_a_state_known_by_default_from_a_sample():
    cells = pd.DataFrame({"cell_id": ["a", "b"], "participant_id": "p", "known_state": ["absent", None]})
    assert check_cells(cells, EVIDIAL)["known_by"].fillna("").tolist() == ["sampled", ""]


def test_checking_leaves_the_given_frame_alone():
    given = pd.DataFrame({"cell_id": [1, 2], "participant_id": [1, 2]})
    before = given.copy()
    check_cells(given, EVIDIAL)
    pd.testing.assert_frame_equal(given, before)


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(str.strip),
        min_size=1,
        max_size=8,
        unique=True,
    )
)
def test_ids_survive_the_way_through_a_file(tmp_path_factory, ids):
    path = tmp_path_factory.mktemp("ids") / "cells.csv"
    pd.DataFrame({"cell_id": ids, "participant_id": ids}).to_csv(path, index=False, quoting=1)
    cells = read_cells(path, EVIDIAL)
    assert cells["cell_id"].tolist() == cells["participant_id"].tolist() == ids


def test_healthver(shared_data):
    folder = shared_data / "healthver"
    votes = read_votes(folder / "votes.csv", FACT_CHECK)
    cells = read_cells(folder / "cells.csv", FACT_CHECK)
    predictions = read_predictions(folder / "predictions.csv", FACT_CHECK, cells)
    panel = build_panel(votes, cells, FACT_CHECK)
    assert len(cells) == 500
    assert len(panel.coords["judge"]) == 3
    assert predictions.groupby(["model", "method"]).ngroups == 9
    # Counted with grep and wc: 1,500 rows, of which 4 have an empty vote; 280 claims.
    assert (len(votes), int(votes["vote"].isna().sum()), len(panel.vote_cell)) == (1500, 4, 1496)
    assert len(panel.coords["participant"]) == 280
    assert not panel.judges["excluded"].any()


# ------------------------------------------------------------------ files that are no table


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("votes.csv", "", r"votes\.csv: the file is empty; it needs a header and at least one row"),
        ("votes.csv", "\n\n", r"votes\.csv: the file is empty"),
        ("votes.csv", "cell_id,judge,vote\n", r"votes\.csv: the file has a header but no rows"),
        ("votes.xlsx", "x", r"votes\.xlsx: unknown kind of file; allowed: .* \.csv, \.csv\.gz, \.parquet"),
        ("votes.csv", b"PK\x03\x04\x00", r"votes\.csv: is a spreadsheet or a zip archive: save it as \.csv"),
        (
            "votes.csv",
            gzip.compress(VOTES.encode()),
            r"votes\.csv: is compressed with gzip: name it \.csv\.gz",
        ),
        ("votes.csv", b"PAR1\x00\x00", r"votes\.csv: is a Parquet file: name it \.parquet"),
        ("votes.csv", VOTES.encode("utf-16"), r"votes\.csv: is not UTF-8 but UTF-16"),
        (
            "votes.csv",
            b"cell_id,judge,vote\nc1,a,x\nc2,Zo\xeb,x\n",
            r"line 3: not UTF-8 \(byte 0xeb at position 31\)",
        ),
        (
            "votes.csv",
            "cell_id,judge,vote\nc1,a\x00,x\n",
            r"votes\.csv, line 2: a NUL byte; this is no CSV file",
        ),
        (
            "votes.csv",
            "cell_id;judge;vote\nc1;a;x\n",
            r"line 1: the columns are separated by ';'; allowed: commas",
        ),
        ("votes.csv", "cell_id\tjudge\tvote\nc1\ta\tx\n", r"line 1: the columns are separated by '\\t'"),
        ("votes.csv", VOTES + "c3,a\n", r"votes\.csv, line 6: 2 values, but the header names 4 columns"),
        (
            "votes.csv",
            VOTES + "\nc3,a,b,c,d\n",
            r"votes\.csv, line 7: 5 values, but the header names 4 columns",
        ),
        (
            "votes.csv",
            VOTES + 'c3,a,absent,"x\nc4,',
            r"votes\.csv, line 6: a quote is opened and never closed",
        ),
        (
            "votes.csv",
            "cell_id,judge,vote,vote\n1,2,3,4\n",
            r"header: column `vote` is there 2 times; names must",
        ),
        ("votes.csv.gz", VOTES, r"votes\.csv\.gz: not a readable gzip file"),
        ("votes.csv.gz", gzip.compress(VOTES.encode())[:40], r"votes\.csv\.gz: not a readable gzip file"),
        ("votes.parquet", b"PAR1 no PAR1", r"votes\.parquet: not a readable Parquet file"),
        ("votes.parquet", VOTES, r"votes\.parquet: not a readable Parquet file"),
    ],
)
def test_a_file_that_is_no_table(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match=message) as caught:
        read_votes(path, EVIDIAL)
    assert str(caught.value).startswith(str(path))


def test_nested_and_binary_parquet_columns(tmp_path):
    path = tmp_path / "votes.parquet"
    pd.DataFrame({"cell_id": [["a"]], "judge": "x", "vote": "absent"}).to_parquet(path)
    with pytest.raises(InputError, match=r"column `cell_id`: list<.*> is no plain value; allowed: text, number"):
        read_votes(path, EVIDIAL)
    pd.DataFrame({"cell_id": [b"\xff"], "judge": "x", "vote": "absent"}).to_parquet(path)
    with pytest.raises(InputError, match=r"column `cell_id`: bytes that are not UTF-8 text"):
        read_votes(path, EVIDIAL)


def test_a_file_that_is_not_there(tmp_path):
    write(tmp_path, "votes.csv", VOTES)
    write(tmp_path, "notes.txt", "")
    with pytest.raises(InputError, match=r"vote\.csv: no such file; .*: votes\.csv\. Did you mean 'votes\.csv'\?"):
        read_votes(tmp_path / "vote.csv", EVIDIAL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"votes\.csv: no such file; that folder holds no table\."):
        read_votes(tmp_path / "empty" / "votes.csv", EVIDIAL)
    with pytest.raises(InputError, match=r"no such file; there is no folder .*nowhere either"):
        read_votes(tmp_path / "nowhere" / "votes.csv", EVIDIAL)
    with pytest.raises(InputError, match=r"empty: is a folder; allowed: a file ending in \.csv"):
        read_votes(tmp_path / "empty", EVIDIAL)


# ------------------------------------------------------------------ tables that are wrong


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "judge,vote",
            "jugde,vote",
            r"column `judge` is missing; there: cell_id, jugde, .* Did you mean 'jugde'\?",
        ),
        (
            "judge_family",
            "Judge Family",
            r"column `Judge Family` is `judge_family` spelled otherwise; rename it",
        ),
        ("c1,b,", ",b,", r", line 3, column `cell_id`: empty; every row needs a value\.$"),
        ("c1,b,", "c1, ,", r", line 3, column `judge`: empty; every row needs a value\.$"),
        (
            "c1,b,partial",
            "c1,a,partial",
            r", lines 2 and 3, columns `cell_id`, `judge`: 'c1', 'a' is there 2 times with vote "
            r"'absent' and 'partial'; keep one row, or number the readings of one judge in `replicate`",
        ),
        (
            "c1,b,partial",
            "c1,a,absent",
            r", lines 2 and 3, columns `cell_id`, `judge`: 'c1', 'a' is there 2 times with the same vote "
            r"'absent'; keep one row, or number",
        ),
        (
            "c1,b,partial,x",
            "c1,b,partial,y",
            r", lines 3 and 5, column `judge_family`: judge 'b' has 'y' and 'x'; a judge has one family",
        ),
    ],
)
def test_wrong_votes(tmp_path, old, new, message):
    path = write(tmp_path, "votes.csv", swapped(VOTES, old, new))
    with pytest.raises(InputError, match=message) as caught:
        read_votes(path, EVIDIAL)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_one_judge_only(tmp_path):
    path = write(tmp_path, "votes.csv", "cell_id,judge,vote\nc1,a,absent\nc2,a,partial\n")
    with pytest.raises(InputError, match=r"column `judge`: one judge only \('a'\); at least two are needed"):
        read_votes(path, EVIDIAL)


def test_no_valid_vote(tmp_path):
    path = write(tmp_path, "votes.csv", "cell_id,judge,vote\nc1,a,ABSENT\nc1,b,ABSENT\nc2,a,?\n")
    message = r"no vote is in the codebook 'evidial'; found 'ABSENT', '\?'; allowed: .* Did you mean 'absent'"
    with pytest.raises(InputError, match=message):
        read_votes(path, EVIDIAL)


def test_replicates_tell_readings_apart_but_not_twice(tmp_path):
    content = "cell_id,judge,vote,replicate\nc1,a,absent,1\nc1,a,partial,2\nc1,b,absent,\n"
    assert len(read_votes(write(tmp_path, "votes.csv", content), EVIDIAL)) == 3
    path = write(tmp_path, "votes.csv", content.replace(",2\n", ",1\n"))
    with pytest.raises(InputError, match=r"lines 2 and 3, columns `cell_id`, `judge`, `replicate`: 'c1', 'a', '1'"):
        read_votes(path, EVIDIAL)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("participant_id", "person", r": column `participant_id` is missing; there: cell_id, person, source"),
        ("native_label", "NativeLabel", r": column `NativeLabel` is `native_label` spelled otherwise"),
        ("c2,p1", "c1,p1", r", lines 2 and 3, columns `cell_id`: 'c1' is there 2 times; a cell has one row"),
        ("c2,p1", ",p1", r", line 3, column `cell_id`: empty"),
        ("c2,p1", "c2,", r", line 3, column `participant_id`: empty"),
        (
            "p1,PDCH,fatigue",
            "p1,,fatigue",
            r", line 2, column `source`: empty; fill every row or leave the column",
        ),
        ("fatigue,0", ",0", r", line 2, column `dimension`: empty; fill every row or leave the column out"),
        (
            "PDCH,fatigue",
            "PDCH,fatige",
            r", line 2, column `dimension`: 'fatige' is not allowed; allowed: .* Did you mean 'fatigue'\?",
        ),
        (
            "PDCH,fatigue",
            "PDCH,concentration",
            r", line 2, column `dimension`: PDCH \(HAMD-17\) has no item for 'concentration'; leave",
        ),
        (
            "positive,dev",
            "postive,dev",
            r", line 3, column `native_label`: 'postive' is not allowed; allowed: negative, positive\. "
            r"Did you mean 'positive'\?",
        ),
        (",1.5,", ",high,", r", line 3, column `native_score`: 'high' is no number; leave it empty when"),
        (",1.5,", ',"1,5",', r", line 3, column `native_score`: '1,5' is no number"),
        (",1.5,", ",nan,", r", line 3, column `native_score`: 'nan' is no number"),
        (
            "partial,con",
            "partly,con",
            r", line 3, column `known_state`: 'partly' is not allowed; allowed: absent, pa",
        ),
        (
            "constructed",
            "made",
            r", line 3, column `known_by`: 'made' is not allowed; allowed: constructed, sampled",
        ),
        ("partial,con", ",con", r", line 3, column `known_by`: given without a `known_state`"),
        (
            "positive,dev",
            "positive,test",
            r", lines 2 and 3, column `split`: participant_id 'p1' has 'dev' and 'test'; a participant",
        ),
    ],
)
def test_wrong_cells(tmp_path, old, new, message):
    path = write(tmp_path, "cells.csv", swapped(CELLS, old, new))
    with pytest.raises(InputError, match=message) as caught:
        read_cells(path, EVIDIAL)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "prediction\n",
            "answer\n",
            r": column `prediction` is missing; there: cell_id, model, method, answer",
        ),
        (
            "direct,negative",
            "direct,negativ",
            r", line 2, column `prediction`: 'negativ' is not allowed; allowed: negative, positive, abstain, "
            r"failed\. Did you mean 'negative'\?",
        ),
        (
            "direct,negative",
            "direct,",
            r", line 2, column `prediction`: '' is not allowed; allowed: negative, ",
        ),
        ("m,cot", ",cot", r", line 4, column `model`: empty"),
        (
            "cot,failed",
            "direct,failed",
            r", lines 2 and 4, columns `cell_id`, `model`, `method`: 'c1', 'm', 'direct' is there 2 times "
            r"with prediction 'negative' and 'failed'; keep one row, or number the runs in `run`",
        ),
        ("c2,m", "c9x,m", r", line 3, column `cell_id`: .*cells\.csv has no cell 'c9x'\.$"),
        (
            "c2,m",
            " c2,m",
            r", line 3, .* has no cell ' c2'\. Without the blanks around it, it is known: 'c2'\.$",
        ),
        ("c2,m", "C2,m", r", line 3, .* has no cell 'C2'\. Did you mean 'c2'\?$"),
    ],
)
def test_wrong_predictions(tmp_path, old, new, message):
    cells = read_cells(write(tmp_path, "cells.csv", CELLS), EVIDIAL)
    path = write(tmp_path, "predictions.csv", swapped(PREDICTIONS, old, new))
    with pytest.raises(InputError, match=message) as caught:
        read_predictions(path, EVIDIAL, cells)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_predictions_need_native_labels(tmp_path):
    cells = read_cells(write(tmp_path, "cells.csv", CELLS), EVIDIAL)
    path = write(tmp_path, "predictions.csv", PREDICTIONS + "c3,m,direct,positive\n")
    message = r"cells\.csv, line 4, column `native_label`: empty, but .*predictions\.csv has predictions for .*'c3'"
    with pytest.raises(InputError, match=message):
        read_predictions(path, EVIDIAL, cells)
    bare = pd.DataFrame({"cell_id": ["c1", "c2", "c3"], "participant_id": "p"})
    with pytest.raises(InputError, match=r"^cells: column `native_label` is missing; .*predictions\.csv cannot be"):
        read_predictions(path, EVIDIAL, bare)


def test_runs_tell_repeated_predictions_apart():
    cells = pd.DataFrame({"cell_id": ["c1"], "participant_id": "p", "native_label": "positive"})
    table = pd.DataFrame({"cell_id": "c1", "model": "m", "method": "d", "prediction": "positive", "run": [1, 2]})
    assert check_predictions(table, EVIDIAL, cells)["run"].tolist() == ["1", "2"]


def test_predictions_under_a_codebook_without_labels():
    codebook = Codebook.from_mapping({"name": "bare", "states": ["1", "2"]})
    cells = pd.DataFrame({"cell_id": ["c1"], "participant_id": "p"})
    table = pd.DataFrame({"cell_id": ["c1"], "model": "m", "method": "d", "prediction": "1"})
    with pytest.raises(InputError, match=r"predictions: the codebook 'bare' has no labels"):
        check_predictions(table, codebook, cells)


def test_votes_on_unknown_cells_are_counted_and_the_first_are_named(tmp_path):
    cells = read_cells(write(tmp_path, "cells.csv", "cell_id,participant_id\n007,p\n010,p\nc3 ,p\n"), EVIDIAL)
    rows = [f"{cell},{judge},absent" for cell in ("7", "10.0", "c3", "x4", "x5", "x6") for judge in "abcdef"]
    votes = read_votes(write(tmp_path, "votes.csv", "\n".join(["cell_id,judge,vote", *rows])), EVIDIAL)
    with pytest.raises(InputError) as caught:
        build_panel(votes, cells, EVIDIAL)
    head, *named = str(caught.value).splitlines()
    assert "36 of 36 rows name 6 cells that" in head
    assert head.endswith("cells.csv does not have, the first 5:")
    assert len(named) == 5
    assert "lines 2, 3, 4 and 3 more, column `cell_id`" in named[0]
    assert named[0].endswith("has no cell '7'. Did you mean '007'?")
    assert named[1].endswith("has no cell '10.0'. Did you mean '010'?")
    assert named[2].endswith("has no cell 'c3'. Did you mean 'c3 '?")


def test_several_problems_of_one_file_come_together(tmp_path):
    content = swapped(CELLS, "positive,dev", "postive,dev").replace(",1.5,", ",high,").replace("c1,p1", ",p1")
    with pytest.raises(InputError) as caught:
        read_cells(write(tmp_path, "cells.csv", content), EVIDIAL)
    head, *named = str(caught.value).splitlines()
    assert head.endswith("cells.csv: 3 problems:")
    assert [line.split(":")[0].strip() for line in named] == [
        "- line 2, column `cell_id`",
        "- line 3, column `native_label`",
        "- line 3, column `native_score`",
    ]


def test_many_problems_are_counted_and_five_are_shown():
    labels = [f"label {n}" for n in range(40)]
    cells = pd.DataFrame({"cell_id": labels, "participant_id": "p", "native_label": labels})
    with pytest.raises(InputError) as caught:
        check_cells(cells, EVIDIAL)
    assert str(caught.value).startswith("cells: 40 problems, the first 5:\n")
    assert str(caught.value).count("\n") == 5


def test_a_frame_from_python_is_named_by_its_own_rows():
    votes = pd.DataFrame({"cell_id": ["c1", "c1"], "judge": ["a", None], "vote": "absent"}, index=["r1", "r2"])
    with pytest.raises(InputError, match=r"^votes, row r2, column `judge`: empty; every row needs a value\.$"):
        check_votes(votes, EVIDIAL)
    with pytest.raises(InputError, match=r"^mine, row r2, "):
        check_votes(votes, EVIDIAL, file="mine")
    # Labels that repeat point nowhere: rows are counted instead.
    with pytest.raises(InputError, match=r"^votes, row 1, "):
        check_votes(votes.set_axis(["r", "r"]), EVIDIAL)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([1, 2], r"votes: a list is no table; allowed: a pandas DataFrame or a file"),
        (pd.DataFrame(columns=["cell_id", "judge", "vote"]), r"votes: the table has no rows"),
        (
            pd.DataFrame([[1, 2, 3, 4]], columns=["cell_id", "judge", "vote", "vote"]),
            r"votes: column `vote` is there 2 times; names must differ",
        ),
        (
            pd.DataFrame({"judge": ["a"], "vote": ["absent"]}, index=pd.Index(["c1"], name="cell_id")),
            r"votes: column `cell_id` is missing; there: judge, vote\. It is the index: call reset_index\(\)",
        ),
    ],
)
def test_frames_that_are_no_table(votes, message):
    with pytest.raises(InputError, match=message):
        check_votes(votes, EVIDIAL)
