"""What a person reads at the end of a run: with colour on a terminal, plain and whole in a file or a pipe."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.verdict import Check

ETHICS = (
    "States describe what the text carries, never a person's health: absent or partial evidence is no "
    "evidence of being well, and nothing here is a diagnosis."
)
UNBOUNDED = 100_000  # columns of a file or pipe: wide enough that nothing wraps or is cut
STYLES = {"PASS": "green", "REVIEW": "yellow", "FAIL": "bold red"}
SHARES = {"share_states": "states", "share_parameters": "parameters", "share_participants": "participants"}


def console() -> Console:
    """Console on standard output; without a terminal it neither wraps nor colours."""
    probe = Console()
    return probe if probe.is_terminal else Console(width=UNBOUNDED, no_color=True, highlight=False)


def panel_summary(panel: Panel) -> Table:
    """Sizes of the panel, and who was excluded from it."""
    judges = panel.judges
    table = _table("Panel", "", "")
    excluded = judges.index[judges["excluded"]]
    n_valid, n_invalid, n_missing = judges[["n_valid", "n_invalid", "n_missing"]].sum()
    rows = {
        "cells": f"{len(panel.cells):,}, {int((panel.n_votes == 0).sum()):,} of them without a vote",
        "participants": f"{len(panel.coords['participant']):,}",
        "judges": f"{len(panel.coords['judge'])}: {', '.join(map(str, panel.coords['judge']))}",
        "votes": f"{n_valid:,} valid, {n_invalid:,} outside the codebook, {n_missing:,} empty",
        "excluded judges": "; ".join(
            f"{judge} ({judges.loc[judge, 'valid_share']:.0%} of its votes valid)" for judge in excluded
        )
        or "none",
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def checks_table(checks: Sequence[Check]) -> Table:
    """Every check with its status, and what to do about those that did not pass."""
    table = _table("Checks", "check", "status", "value", "threshold", "advice")
    for check in checks:
        passed = check.status == "PASS"
        table.add_row(
            Text(check.name),
            Text(check.status, style=STYLES.get(check.status, "")),
            _plain(check.value),
            _plain(check.threshold),
            Text("" if passed else check.advice),
        )
    return table


def shares_table(shares: xr.DataArray, ci_prob: float) -> Table:
    """Share of cells in every state, by source, with its interval."""
    sources = [str(source) for source in shares["source"].values]
    table = _table(f"Share of cells by state, {ci_prob:.0%} interval", "state", *sources)
    tail = (1 - ci_prob) / 2
    mean = shares.mean("draw").values
    low, high = shares.quantile([tail, 1 - tail], dim="draw").values
    for s, state in enumerate(shares["state"].values):
        values = [_interval(mean[g, s], low[g, s], high[g, s], percent=True) for g in range(len(sources))]
        table.add_row(Text(str(state)), *values)
    return table


def audit_table(audit: pd.DataFrame, ci_prob: float) -> Table:
    """One row per system: the main metrics with intervals, their companions, what makes the UCR uncertain."""
    table = _table(
        f"Audit, {ci_prob:.0%} intervals", "model", "method", "UCR", "hit caliber", "coverage", "accuracy",
        "UCR's main uncertainty",
    )  # fmt: skip
    for (model, method), rows in audit.groupby(["model", "method"], sort=False):
        by = rows.set_index("metric")
        table.add_row(
            Text(str(model)),
            Text(str(method)),
            *(_interval(*by.loc[m, ["estimate", "lower", "upper"]]) for m in ("ucr", "hit_caliber")),
            *(_number(by.loc[m, "estimate"]) for m in ("coverage", "accuracy")),
            dominant_source(by.loc["ucr"]),
        )
    return table


def dominant_source(row: pd.Series) -> str:
    """Source with the largest share of the variance, as in ``participants 71%``; a dash where undefined."""
    shares = {name: row[column] for column, name in SHARES.items() if np.isfinite(row[column])}
    if not shares:
        return "–"
    name = max(shares, key=shares.__getitem__)
    return f"{name} {shares[name]:.0%}"


def files_text(files: Sequence[Path], folder: Path) -> str:
    """Where everything is."""
    return "\n  ".join([f"Results in {folder}", *(str(file.relative_to(folder)) for file in files)])


def report(*parts: Table | str) -> None:
    """Print tables and sentences to standard output, in order."""
    out = console()
    for part in parts:
        out.print(part if isinstance(part, Table) else Text(part))


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=Text(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD,
        show_header=any(columns), pad_edge=False,
    )  # fmt: skip
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table


def _number(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "undefined"


def _interval(estimate: float, lower: float, upper: float, *, percent: bool = False) -> str:
    if not np.isfinite(estimate):
        return "undefined"
    form = "{:.1%}" if percent else "{:.3f}"
    return f"{form.format(estimate)} [{form.format(lower)}, {form.format(upper)}]"


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
