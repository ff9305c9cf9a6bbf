"""Results as files: one function per file, each written whole or not at all."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from evidial_bayes.data.errors import InputError
from evidial_bayes.export.atomic import replacing
from evidial_bayes.inference.verdict import Check
from evidial_bayes.reference.base import Reference

POSTERIOR = "posterior.nc"
ROWS_BYTES = 2**22  # what is compressed in one piece
STATUSES = ("PASS", "REVIEW", "FAIL")  # from good to bad


def write_table(table: pd.DataFrame, path: Path) -> Path:
    """Write a table as CSV or Parquet, by the path's ending, without its index."""
    with replacing(path) as file:
        if path.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, index=False)
    return path


def write_posterior(fit: xr.DataTree, path: Path) -> Path:
    """Write a fit as compressed NetCDF (HDF5), lossless, that ArviZ and xarray open as it is."""
    encoding = {
        f"/{group}": {str(name): _compressed(v) for name, v in node.data_vars.items() if v.dtype.kind in "fiub"}
        for group, node in fit.children.items()
    }
    with replacing(path) as file:
        fit.to_netcdf(file, engine="h5netcdf", encoding={g: e for g, e in encoding.items() if e})
    return path


def _compressed(variable: xr.DataArray) -> dict[str, Any]:
    """Compression by rows of whole draws: cells that share a pattern repeat their value within a draw."""
    if not variable.size or not variable.ndim:
        return {}
    encoding: dict[str, Any] = {"zlib": True, "complevel": 4, "shuffle": False}
    if variable.dims[:2] == ("chain", "draw"):
        n_draws, rest = variable.shape[1], variable.shape[2:]
        rows = ROWS_BYTES // (variable.dtype.itemsize * math.prod(rest))
        encoding["chunksizes"] = (1, min(n_draws, max(rows, 1)), *rest)
    return encoding


def read_posterior(path: Path) -> xr.DataTree:
    """Read a fit back into memory.

    Raises
    ------
    InputError
        The file is missing, or is not NetCDF.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; a folder of `evidial fit` or `evidial audit` has one.")
    try:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load()
    except OSError as error:
        raise InputError(f"{path}: cannot be read as NetCDF ({error}).") from error


def reference_table(reference: Reference) -> pd.DataFrame:
    """State probabilities of every cell: one row per cell in planned order.

    Returns
    -------
    pandas.DataFrame
        ``cell``; ``p_<state>`` for every state, probabilities that sum to one; ``map_state``, the most
        probable state; ``entropy`` in nats; ``n_votes``; ``resolved``.
    """
    states = reference.codebook.states
    table = pd.DataFrame({"cell": np.asarray(reference.cells)})
    table[[f"p_{state}" for state in states]] = reference.probability
    table["map_state"] = np.array(states, dtype=object)[reference.map_state]
    table["entropy"] = reference.entropy
    table["n_votes"] = reference.n_votes
    table["resolved"] = reference.resolved
    return table


def calibration_table(parameters: xr.Dataset, ci_prob: float) -> pd.DataFrame:
    """Parameters of a calibration: one row each.

    Parameters
    ----------
    parameters
        Draws, ``[chain, draw, ...]``.
    ci_prob
        Probability of the quantile intervals.

    Returns
    -------
    pandas.DataFrame
        ``parameter``; ``label``, along its dims; ``mean``, ``sd``, ``lower``, ``upper``.
    """
    rows = []
    for name, values in parameters.data_vars.items():
        dims = [dim for dim in values.dims if dim not in ("chain", "draw")]
        for at in np.ndindex(*(values.sizes[dim] for dim in dims)):
            one = values.isel(dict(zip(dims, at, strict=True)))
            label = ", ".join(str(values[dim].values[i]) for dim, i in zip(dims, at, strict=True))
            lower, upper = np.quantile(one, [(1 - ci_prob) / 2, (1 + ci_prob) / 2])
            rows.append((str(name), label, float(one.mean()), float(one.std()), lower, upper))
    return pd.DataFrame(rows, columns=["parameter", "label", "mean", "sd", "lower", "upper"])


def write_checks(checks: Sequence[Check], path: Path) -> Path:
    """Write the checks as JSON: the worst status, then every check; what is not finite becomes null."""
    rows = [{k: _finite(v) for k, v in asdict(check).items()} for check in checks]
    text = json.dumps({"status": worst(checks), "checks": rows}, indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(path) as file:
        file.write_text(text + "\n", encoding="utf-8")
    return path


def worst(checks: Sequence[Check]) -> str:
    """Worst status among the checks: PASS, REVIEW or FAIL."""
    return max((check.status for check in checks), key=STATUSES.index, default=STATUSES[0])


def write_simulation(tables: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write simulated tables as ``<name>.csv``, in the shape in which the door reads them."""
    return [write_table(table, folder / f"{name}.csv") for name, table in tables.items()]


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity; NumPy scalars become Python's."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
