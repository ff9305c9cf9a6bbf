"""What is wrong with a table, in sentences that name the rows."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import pandas as pd
import pandera.pandas as pandera

from evidial_bayes.data.errors import InputError, suggest

_SHOWN = 5
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
# Comparing one id with 100,000 others takes a second: beyond this number only trivial differences are tried.
_SIMILAR_AMONG = 5_000


def refuse(file: str, problems: Sequence[str]) -> NoReturn:
    """Raise one `InputError` for all problems of a file; the first five are spelled out."""
    if len(problems) == 1:
        raise InputError(f"{file}, {problems[0]}")
    head = f"{file}: {len(problems)} problems" + (f", the first {_SHOWN}:" if len(problems) > _SHOWN else ":")
    raise InputError("\n  - ".join([head, *problems[:_SHOWN]]))


def where(table: pd.DataFrame, labels: Iterable[object]) -> str:
    """``line 7``, ``lines 7 and 9``, or ``lines 7, 9, 12 and 297 more``."""
    shown = [str(label) for label in labels]
    unit = str(table.index.name or "row")
    if len(shown) == 1:
        return f"{unit} {shown[0]}"
    last = shown[-1] if len(shown) <= 4 else f"{len(shown) - 3} more"
    return f"{unit}s {', '.join(shown[: min(3, len(shown) - 1)])} and {last}"


def quote(value: str) -> str:
    """Put a value in quotes; of a long one only the beginning."""
    return f"'{value}'" if len(value) <= 60 else f"'{value[:57]}...'"


def check_columns(
    table: pd.DataFrame,
    file: str,
    filled: Sequence[str],
    allowed: Mapping[str, Sequence[str]],
    number: str = "",
    *,
    empty: bool = True,
) -> None:
    """Check every column by itself and refuse all that is wrong at once.

    Parameters
    ----------
    table
        Columns of text.
    file
        Name for messages.
    filled
        Columns that need a value in every row.
    allowed
        Column → allowed values; columns that are not there are skipped.
    number
        Column of plain decimal numbers or empty values.
    empty
        Whether an empty value is allowed as well.

    Raises
    ------
    InputError
        Names rows, column, value and what is allowed.
    """
    columns = {}
    for column in filled:
        check = pandera.Check(lambda text: text.str.strip() != "", error="empty; every row needs a value")
        columns[column] = pandera.Column(checks=check)
    for column, values in allowed.items():
        error = f"not allowed; allowed: {', '.join(values)}"
        check = pandera.Check.isin([*values, ""] if empty else list(values), error=error)
        columns[column] = pandera.Column(checks=check, required=False)
    if number:
        error = "no number; leave it empty when it is missing"
        check = pandera.Check(lambda text: text.str.fullmatch(f"({_NUMBER})?"), error=error)
        columns[number] = pandera.Column(checks=check, required=False)
    problems: list[str] = []
    try:
        pandera.DataFrameSchema(columns).validate(table, lazy=True)
    except pandera.errors.SchemaErrors as failed:
        cases = failed.failure_cases.groupby(["column", "check", "failure_case"], sort=False)
        for (column, error, value), rows in cases:
            shown = error if column in filled else f"{quote(value)} is {error}"
            hint = suggest(value, allowed.get(column, ()))
            problems.append(f"{where(table, rows['index'])}, column `{column}`: {shown}.{hint}")
    # Outside the handler: chained, pandera's own report would drown the message.
    if problems:
        refuse(file, problems)


def unknown_ids(table: pd.DataFrame, known: pd.Series, other: str) -> list[str]:
    """Find rows whose ``cell_id`` the table ``other`` does not have."""
    rows = table.loc[~table["cell_id"].isin(known), "cell_id"]
    names = rows.unique()
    near = {_plain(name): name for name in known} if len(names) else {}
    problems = [
        f"{where(table, rows.index[rows == name])}, column `cell_id`: "
        f"{other} has no cell {quote(name)}.{_nearest(name, known, near)}"
        for name in names[:_SHOWN]
    ]
    count = f"{len(rows)} of {len(table)} rows name {len(names)} cells that {other} does not have"
    return _gathered(count, problems, len(names))


def repeated(table: pd.DataFrame, key: Sequence[str], advice: str, value: str | None = None) -> list[str]:
    """Find rows that share their key; the message tells whether they also share the ``value``."""
    rows = table[table.duplicated(list(key), keep=False)]
    firsts = rows.drop_duplicates(list(key))
    columns = ", ".join(f"`{column}`" for column in key)
    problems = []
    for _, first in firsts.head(_SHOWN).iterrows():
        same = rows[(rows[list(key)] == first[list(key)]).all(axis="columns")]
        text = f"{where(table, same.index)}, columns {columns}: "
        text += f"{', '.join(quote(first[column]) for column in key)} is there {len(same)} times"
        if value is not None:
            values = same[value].unique()
            text += f" with the same {value} " if len(values) == 1 else f" with {value} "
            text += _quoted(values)
        problems.append(f"{text}; {advice}.")
    return _gathered(f"columns {columns}: {len(firsts)} keys repeat", problems, len(firsts))


def clashing(table: pd.DataFrame, unit: str, column: str, advice: str) -> list[str]:
    """Find units (judges, participants) with two values where only one can be; an empty value is none."""
    pairs = table.loc[table[column] != "", [unit, column]].drop_duplicates()
    rows = pairs[pairs.duplicated(unit, keep=False)]
    return [
        f"{where(table, same.index)}, column `{column}`: {unit} {quote(name)} has {_quoted(same[column])}; {advice}."
        for name, same in rows.groupby(unit, sort=False)
    ]


def _gathered(count: str, problems: list[str], n: int) -> list[str]:
    if n <= 1:
        return problems
    shown = f", the first {_SHOWN}:" if n > _SHOWN else ":"
    return ["\n    - ".join([count + shown, *problems])]


def _plain(name: str) -> str:
    """Strip from an id what spreadsheets change: blanks, capitals, leading zeros, a decimal zero."""
    return name.strip().casefold().removesuffix(".0").lstrip("0")


def _nearest(name: str, known: pd.Series, near: Mapping[str, str]) -> str:
    found = near.get(_plain(name))
    if found is not None:
        if found == name.strip():
            return f" Without the blanks around it, it is known: '{found}'."
        return f" Did you mean '{found}'?"
    if len(known) > _SIMILAR_AMONG:
        return ""
    similar = difflib.get_close_matches(name, known.tolist(), n=1, cutoff=0.75)
    return f" Did you mean '{similar[0]}'?" if similar else ""


def _quoted(values: Iterable[str]) -> str:
    shown = [quote(value) for value in values]
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN - 1], f"{len(shown) - _SHOWN + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
