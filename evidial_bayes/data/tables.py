"""The tables at the door: votes, cells and predictions are read, checked, and refused by file and row."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evidial_bayes.data.checks import check_columns, clashing, quote, refuse, repeated, unknown_ids, where
from evidial_bayes.data.codebook import NOT_ANSWERED, Codebook
from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.files import as_text, read_text_table

# table: (required columns, optional columns)
_COLUMNS = {
    "votes": (("cell_id", "judge", "vote"), ("judge_family", "prompt", "replicate")),
    "cells": (
        ("cell_id", "participant_id"),
        (
            *("source", "language", "dimension", "dimension_group", "native_score", "native_label"),
            *("split", "known_state", "known_by"),
        ),
    ),
    "predictions": (("cell_id", "model", "method", "prediction"), ("run",)),
}
# Covariates that are read as numbers; `007` and ids too long for a float stay text.
_NUMBER = r"[+-]?(0|[1-9]\d{0,14})(\.\d+)?([eE][+-]?\d+)?"


def read_votes(path: str | Path, codebook: Codebook) -> pd.DataFrame:
    """Read and check a votes table; see `check_votes`."""
    return check_votes(read_text_table(path), codebook)


def read_cells(path: str | Path, codebook: Codebook) -> pd.DataFrame:
    """Read and check a cells table; see `check_cells`."""
    return check_cells(read_text_table(path), codebook)


def read_predictions(path: str | Path, codebook: Codebook, cells: pd.DataFrame) -> pd.DataFrame:
    """Read and check a predictions table; see `check_predictions`."""
    return check_predictions(read_text_table(path), codebook, cells)


def check_votes(votes: pd.DataFrame, codebook: Codebook, file: str | None = None) -> pd.DataFrame:
    """Check who voted what on which cell.

    Parameters
    ----------
    votes
        Columns cell_id, judge, vote; optional judge_family, prompt, replicate; others are ignored.
    codebook
        Its categories are the valid votes.
    file
        Name for error messages; default the file that the table was read from.

    Returns
    -------
    pandas.DataFrame
        The known columns as text, rows unchanged. A vote outside the categories is kept (`build_panel` counts
        it); an empty one is missing. Index ``line`` (CSV) or ``row``.

    Raises
    ------
    InputError
        A column is missing, a cell or judge is empty, a (cell, judge) pair repeats without ``replicate``, a
        judge has two families, there is one judge only, or no vote is in the codebook.
    """
    votes, file = _text_table(votes, "votes", file)
    check_columns(votes, file, ("cell_id", "judge"), {})
    key = [column for column in ("cell_id", "judge", "replicate") if column in votes]
    advice = "keep one row, or number the readings of one judge in `replicate`"
    problems = repeated(votes, key, advice, value="vote")
    if "judge_family" in votes:
        problems += clashing(votes, "judge", "judge_family", "a judge has one family")
    if problems:
        refuse(file, problems)
    valid = votes["vote"].isin(codebook.categories)
    if not valid.any():
        common = votes["vote"].value_counts().index[:5]
        seen = ", ".join(quote(vote) for vote in common)
        hints = [hint for vote in common if (hint := suggest(vote.strip().casefold(), codebook.categories))]
        raise InputError(
            f"{file}, column `vote`: no vote is in the codebook '{codebook.name}'; found {seen}; "
            f"allowed: {', '.join(codebook.categories)}.{hints[0] if hints else ''}"
        )
    judges = votes["judge"].unique()
    if len(judges) < 2:
        raise InputError(f"{file}, column `judge`: one judge only ('{judges[0]}'); at least two are needed.")
    return _missing(votes, ("vote", "judge_family", "prompt", "replicate"), "votes", file)


def check_cells(cells: pd.DataFrame, codebook: Codebook, file: str | None = None) -> pd.DataFrame:
    """Check the planned cells.

    Parameters
    ----------
    cells
        Columns cell_id, participant_id; optional source, language, dimension, dimension_group, native_score,
        native_label, split, known_state, known_by; others are covariates.
    codebook
        Its labels, states, dimensions and instruments are what is allowed.
    file
        Name for error messages; default the file that the table was read from.

    Returns
    -------
    pandas.DataFrame
        All columns. ``source`` and ``dimension`` are filled with ``all``, ``dimension_group`` from the
        codebook, else with the dimension, ``known_by`` with ``sampled`` where a state is known. native_score
        and covariates of plain numbers are numeric, everything else is text; NaN is missing. Index ``line``
        (CSV) or ``row``.

    Raises
    ------
    InputError
        A column is missing, an id is empty or repeats, a value is not in the codebook, native_score is no
        number, known_by lacks its state, a participant is on both sides of a split, or an instrument lacks
        the dimension.
    """
    cells, file = _text_table(cells, "cells", file)
    for column in ("source", "dimension"):
        if column not in cells or (cells[column] == "").all():
            cells[column] = "all"
        elif (cells[column] == "").any():
            rows = where(cells, cells.index[cells[column] == ""])
            raise InputError(f"{file}, {rows}, column `{column}`: empty; fill every row or leave the column out.")
    allowed: dict[str, Sequence[str]] = {
        "known_state": codebook.states,
        "known_by": ("constructed", "sampled"),
    }
    if codebook.labels:
        allowed["native_label"] = codebook.labels
    if codebook.dimensions and not (cells["dimension"] == "all").all():
        allowed["dimension"] = list(codebook.dimensions)
    check_columns(cells, file, ("cell_id", "participant_id"), allowed, number="native_score")

    problems = repeated(cells, ["cell_id"], "a cell has one row")
    if "split" in cells:
        problems += clashing(cells, "participant_id", "split", "a participant is on one side of a split")
    for source, instrument in codebook.instruments.items():
        for dimension in instrument.lacks:
            rows = cells.index[(cells["source"] == source) & (cells["dimension"] == dimension)]
            if len(rows):
                problems.append(
                    f"{where(cells, rows)}, column `dimension`: {source} ({instrument.name}) has no item for "
                    f"'{dimension}'; leave these cells out."
                )
    if "known_by" in cells:
        state = cells["known_state"] if "known_state" in cells else ""
        rows = cells.index[(cells["known_by"] != "") & (state == "")]
        if len(rows):
            problems.append(f"{where(cells, rows)}, column `known_by`: given without a `known_state`.")
    if problems:
        refuse(file, problems)
    return _fill_cells(cells, codebook, file)


def check_predictions(
    predictions: pd.DataFrame, codebook: Codebook, cells: pd.DataFrame, file: str | None = None
) -> pd.DataFrame:
    """Check what systems predicted for which cell.

    Parameters
    ----------
    predictions
        Columns cell_id, model, method, prediction; optional run; others are ignored.
    codebook
        Its labels, ``abstain`` and ``failed`` are the allowed predictions.
    cells
        The cells table, as `read_cells` returns it; another frame is checked first.
    file
        Name for error messages; default the file that the table was read from.

    Returns
    -------
    pandas.DataFrame
        The known columns as text. Index ``line`` (CSV) or ``row``.

    Raises
    ------
    InputError
        A column is missing, a value is empty or not allowed, a (cell, model, method, run) repeats, a cell is
        unknown or has no native label.
    """
    if cells.attrs.get("table") != "cells":
        cells = check_cells(cells, codebook)
    predictions, file = _text_table(predictions, "predictions", file)
    if not codebook.labels:
        raise InputError(f"{file}: the codebook '{codebook.name}' has no labels, so predictions cannot be audited.")
    filled = ("cell_id", "model", "method")
    check_columns(predictions, file, filled, {"prediction": (*codebook.labels, *NOT_ANSWERED)}, empty=False)
    cells_file = cells.attrs["file"]
    key = [column for column in (*filled, "run") if column in predictions]
    problems = repeated(predictions, key, "keep one row, or number the runs in `run`", value="prediction")
    problems += unknown_ids(predictions, cells["cell_id"], cells_file)
    if problems:
        refuse(file, problems)
    if "native_label" not in cells:
        raise InputError(f"{cells_file}: column `native_label` is missing; {file} cannot be audited without it.")
    unlabelled = cells[cells["native_label"].isna() & cells["cell_id"].isin(predictions["cell_id"])]
    if len(unlabelled):
        cell = unlabelled["cell_id"].iloc[0]
        raise InputError(
            f"{cells_file}, {where(cells, unlabelled.index)}, column `native_label`: empty, but {file} has "
            f"predictions for the cell ('{cell}'); allowed: {', '.join(codebook.labels)}."
        )
    return _missing(predictions, ("run",), "predictions", file)


def check_vote_cells(votes: pd.DataFrame, cells: pd.DataFrame) -> None:
    """Refuse votes on cells that are not planned.

    Parameters
    ----------
    votes, cells
        Checked tables.

    Raises
    ------
    InputError
        Says how many rows, and names the first cells with their lines and the nearest known id.
    """
    problems = unknown_ids(votes, cells["cell_id"], cells.attrs["file"])
    if problems:
        refuse(votes.attrs["file"], problems)


def _text_table(given: pd.DataFrame, table: str, file: str | None) -> tuple[pd.DataFrame, str]:
    """Copy a table as text (missing is ``""``) and find its name for messages; refuse wrong columns."""
    if not isinstance(given, pd.DataFrame):
        raise InputError(f"{table}: a {type(given).__name__} is no table; allowed: a pandas DataFrame or a file.")
    file = file or str(given.attrs.get("file", table))
    required, optional = _COLUMNS[table]
    names = [str(name) for name in given.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{file}: column `{twice}` is there {names.count(twice)} times; names must differ.")
    if not len(given):
        raise InputError(f"{file}: the table has no rows.")
    for column in required:
        if column not in names:
            hint = " It is the index: call reset_index()." if column in given.index.names else suggest(column, names)
            raise InputError(f"{file}: column `{column}` is missing; there: {', '.join(names)}.{hint}")
    plain = {column.replace("_", ""): column for column in (*required, *optional)}
    for name in names:
        meant = plain.get("".join(filter(str.isalnum, name)).casefold(), name)
        if meant not in names:
            raise InputError(f"{file}: column `{name}` is `{meant}` spelled otherwise; rename it.")
    kept = names if table == "cells" else [name for name in names if name in (*required, *optional)]
    # Labels that several rows share would point nowhere: count the rows instead.
    index = given.index if given.index.is_unique and given.index.nlevels == 1 else pd.RangeIndex(len(given))
    index = index if index.name == "line" else index.rename("row")
    columns = {name: as_text(given.iloc[:, n]).array for n, name in enumerate(names) if name in kept}
    return pd.DataFrame(columns, index=index), file


def _fill_cells(cells: pd.DataFrame, codebook: Codebook, file: str) -> pd.DataFrame:
    groups = cells["dimension"].map(lambda dimension: codebook.dimensions.get(dimension, dimension))
    given = cells.get("dimension_group", groups)
    cells["dimension_group"] = given.mask(given == "", groups)
    if "known_state" in cells:
        by = cells.get("known_by", pd.Series("", index=cells.index, dtype="str"))
        cells["known_by"] = by.mask((by == "") & (cells["known_state"] != ""), "sampled")
    required, optional = _COLUMNS["cells"]
    covariates = [column for column in cells if column not in (*required, *optional)]
    cells = _missing(cells, (*optional, *covariates), "cells", file)
    if "native_score" in cells:
        cells["native_score"] = cells["native_score"].astype(float)
    for column in covariates:
        values = cells[column].dropna()
        if len(values) and values.str.fullmatch(_NUMBER).all():
            cells[column] = pd.to_numeric(cells[column])
    return cells


def _missing(table: pd.DataFrame, columns: Sequence[str], name: str, file: str) -> pd.DataFrame:
    """Turn empty values of the named columns into NaN and put the door's stamp on the table."""
    blank = {column: table[column].mask(table[column] == "") for column in columns if column in table}
    table = table.assign(**blank)
    table.attrs = {"file": file, "table": name}
    return table
