"""The bundled panel: simulated in the shape of the EviDial panel, with its truth; nobody's real data."""

from importlib.resources import files
from pathlib import Path

from evidial_bayes.data.errors import InputError, suggest

PREFIX = "demo:"
TABLES = ("votes.csv.gz", "cells.csv.gz", "predictions.csv.gz", "truth.csv.gz")


def demo_path(name: str) -> Path:
    """Where a bundled table lies.

    Parameters
    ----------
    name
        `votes.csv.gz`, `cells.csv.gz`, `predictions.csv.gz` or `truth.csv.gz`; the ending may be left out.

    Returns
    -------
    Path
        Path of the installed file.

    Raises
    ------
    InputError
        If there is no such table.
    """
    file = name if name.endswith(".csv.gz") else f"{name}.csv.gz"
    if file not in TABLES:
        raise InputError(f"the demo has no table '{name}'; allowed: {', '.join(TABLES)}.{suggest(file, TABLES)}")
    return Path(str(files(__name__).joinpath(file)))


def table_path(text: str) -> Path:
    """Path of a table as configs write it: `demo:votes.csv.gz` is bundled, anything else is a path.

    Parameters
    ----------
    text
        A path, or `demo:` and the name of a bundled table.

    Returns
    -------
    Path
        The path, not checked for existence unless it is bundled.

    Raises
    ------
    InputError
        If a `demo:` table does not exist.
    """
    return demo_path(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else Path(text)
