"""Files on disk → tables of text, with the file line of every row kept in the index."""

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from evidial_bayes.data.errors import InputError, suggest

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
# First bytes of files that come under a wrong name.
_SIGNATURES = {
    b"\x1f\x8b": "is compressed with gzip: name it .csv.gz",
    b"PAR1": "is a Parquet file: name it .parquet",
    b"PK\x03\x04": "is a spreadsheet or a zip archive: save it as .csv or .parquet",
    b"\xff\xfe": "is not UTF-8 but UTF-16 (byte 0, line 1): save it as UTF-8",
    b"\xfe\xff": "is not UTF-8 but UTF-16 (byte 0, line 1): save it as UTF-8",
}
_NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    **{getattr(pa, f"int{b}")(): getattr(pd, f"Int{b}Dtype")() for b in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{b}")(): getattr(pd, f"UInt{b}Dtype")() for b in (8, 16, 32, 64)},
}


def read_text_table(path: str | Path) -> pd.DataFrame:
    """Read a table without interpreting anything: every value is the text that the file holds.

    Parameters
    ----------
    path
        ``.csv`` (UTF-8, comma, header in line 1), ``.csv.gz`` or ``.parquet``.

    Returns
    -------
    pandas.DataFrame
        Columns of dtype ``str``; a missing Parquet value is ``""``. Index ``line`` (file line, header = 1)
        for CSV and ``row`` (first = 1) for Parquet. ``attrs["file"]`` is the path as given.

    Raises
    ------
    InputError
        The file is missing, empty, broken, of another kind, or not UTF-8.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; allowed: a file ending in {_listed(_SUFFIXES)}.")
    if not path.exists():
        _missing(path)
    if not path.name.lower().endswith(_SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; allowed: a file ending in {_listed(_SUFFIXES)}.")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    if not raw:
        raise InputError(f"{path}: the file is empty; it needs a header and at least one row.")
    table = _parquet(path, raw) if path.name.lower().endswith(".parquet") else _csv(path, raw)
    if not len(table):
        raise InputError(f"{path}: the file has a header but no rows.")
    table.attrs = {"file": str(path)}
    return table


def as_text(values: pd.Series) -> pd.Series:
    """Values as text: 3 and 3.0 are ``"3"``, True is ``"True"``, anything missing is ``""``."""
    if isinstance(values.dtype, pd.StringDtype):
        return values.fillna("").astype("str")
    return pd.Series([_one(value) for value in values.tolist()], index=values.index, dtype="str", name=values.name)


def _one(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float | np.floating):
        number = float(value)
        if np.isnan(number):
            return ""
        # An integer column with holes is a float column to pandas; beyond 2**53 the digits would be invented.
        if abs(number) < 2**53 and number.is_integer():
            return str(int(number))
    return str(value)


def _missing(path: Path) -> NoReturn:
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{path}: no such file; there is no folder {folder} either.")
    tables = sorted(p.name for p in folder.iterdir() if p.name.lower().endswith(_SUFFIXES))
    there = f"; tables in that folder: {_listed(tables[:10])}" if tables else "; that folder holds no table"
    raise InputError(f"{path}: no such file{there}.{suggest(path.name, tables)}")


def _parquet(path: Path, raw: bytes) -> pd.DataFrame:
    try:
        table = pa.parquet.ParquetFile(io.BytesIO(raw)).read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]}).") from error
    _distinct(path, table.column_names)
    columns = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_nested(column.type):
            raise InputError(
                f"{path}, column `{name}`: {column.type} is no plain value; allowed: text, number, boolean."
            )
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            try:
                column = column.cast(pa.large_string())
            except pa.ArrowInvalid as error:
                raise InputError(f"{path}, column `{name}`: bytes that are not UTF-8 text.") from error
        columns[name] = as_text(column.to_pandas(types_mapper=_NULLABLE.get)).array
    return pd.DataFrame(columns, index=pd.RangeIndex(1, table.num_rows + 1, name="row"))


def _csv(path: Path, raw: bytes) -> pd.DataFrame:
    if path.name.lower().endswith(".gz"):
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: not a readable gzip file ({error}).") from error
    for signature, advice in _SIGNATURES.items():
        if raw.startswith(signature):
            raise InputError(f"{path}: {advice}.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        raise InputError(
            f"{path}, line {line}: not UTF-8 (byte 0x{byte:02x} at position {error.start}); save the file as UTF-8."
        ) from error
    if not text.strip():
        raise InputError(f"{path}: the file is empty; it needs a header and at least one row.")
    if "\x00" in text:
        raise InputError(
            f"{path}, line {text[: text.index(chr(0))].count(chr(10)) + 1}: a NUL byte; this is no CSV file."
        )
    # Arrow closes an open quote silently at the end of the file.
    if text.count('"') % 2:
        _rows(path, text)
    header = next(row for row in csv.reader(io.StringIO(text, newline="")) if row)
    if len(header) == 1 and (mark := next((m for m in ";\t|" if m in header[0]), None)):
        raise InputError(f"{path}, line 1: the columns are separated by {mark!r}; allowed: commas.")
    places = [f"f{n}" for n in range(len(header))]
    try:
        table = pa.csv.read_csv(
            io.BytesIO(raw),
            read_options=pa.csv.ReadOptions(autogenerate_column_names=True, block_size=1 << 26),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        _rows(path, text)
        raise InputError(f"{path}: not a CSV file ({str(error).splitlines()[0]}).") from error
    # Spreadsheets and pandas leave an index column without a name: it is nobody's variable.
    named = [(place, name) for place, name in zip(places, header, strict=True) if name.strip()]
    _distinct(path, [name for _, name in named])
    data = (
        table.select([place for place, _ in named])
        .slice(1)
        .to_pandas(types_mapper={pa.string(): pd.StringDtype(na_value=np.nan)}.get)
    )
    data.columns = pd.Index([name for _, name in named])
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines == len(data) + 1:
        data.index = pd.RangeIndex(2, lines + 1, name="line")
    else:
        # Blank lines or line breaks inside quotes: count what each row takes.
        data.index = pd.Index(_rows(path, text)[1:], name="line")
    return data


def _rows(path: Path, text: str) -> list[int]:
    """First file line of every row, header included; raises on rows that do not fit the header."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    starts: list[int] = []
    width, start = 0, 1
    try:
        for row in reader:
            if row:
                width = width or len(row)
                if len(row) != width:
                    raise InputError(f"{path}, line {start}: {len(row)} values, but the header names {width} columns.")
                starts.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        advice = "a quote is opened and never closed" if "end of data" in str(error) else str(error)
        raise InputError(f"{path}, line {start}: {advice}.") from error
    return starts


def _distinct(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}, header: column `{name}` is there {names.count(name)} times; names must differ.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
