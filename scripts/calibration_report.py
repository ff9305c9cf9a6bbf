"""The page docs/calibration.md, made of the figures in docs/calibration.json."""

from pathlib import Path

import pandas as pd

RECOMMENDED = "RE-LCA, pool"
SCORES = ("accuracy", "ece", "log_loss", "brier")


def write_report(record: dict, path: Path) -> None:
    """Write the page."""
    rows = pd.DataFrame(record["rows"])
    parts = []
    for panel, of_panel in rows.groupby("panel", sort=False):
        for known, table in of_panel.groupby("known"):
            parts += [f"## {panel}, {known} known cells", "", *_table(table), ""]
    text = "\n".join(parts)
    path.write_text(text, encoding="utf-8")


def _table(rows: pd.DataFrame) -> list[str]:
    mean = rows.groupby("method", sort=False)[list(SCORES)].mean()
    sem = rows.groupby("method", sort=False)["log_loss"].sem()
    lines = ["| method | accuracy | ECE | log loss | Brier |", "|---|---|---|---|---|"]
    for method, one in mean.iterrows():
        error = "" if pd.isna(sem[method]) else f" ± {sem[method]:.4f}"
        lines.append(f"| {method} | {one.accuracy:.3f} | {one.ece:.3f} | {one.log_loss:.4f}{error} | {one.brier:.3f} |")
    return lines
