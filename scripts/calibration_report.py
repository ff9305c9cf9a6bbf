"""The page docs/calibration.md, made of the figures in docs/calibration.json."""

from pathlib import Path

import numpy as np
import pandas as pd

RECOMMENDED = "RE-LCA, one pass, shares"
FLOOR_OF = "RE-LCA, misreading, one pass"
SCORES = ("accuracy", "ece", "log_loss", "brier")
INTRODUCTION = """# Are the probabilities true?

Panels of judges whose gold states are known: how often the most probable state is right, and whether a probability of
.8 is right four times in five. Every method sees the same votes and the same known cells, and is scored on the cells
with gold that are not among them. Each figure is the mean over five random draws of the known cells (seeds 0 to 4); ±
is the standard error over these draws. They share most test cells, so it measures what the choice of known cells
does, and is too small for what another panel would do.

- *ECE* is the expected calibration error in ten bins of equal width; *floor* is what it would be on the test cells if
  probabilities like these (those of *RE-LCA, misreading, one pass*) were perfectly true, by simulation.
- *plurality* and *vote share* are smoothed by 2 %. *Dawid–Skene*, *one coin*, *RE-LCA* (clarity), *family reading*
  (only where families have several judges) and *RE-LCA, misreading* are posteriors as they come, fitted to the votes
  alone.
- The lines after them are calibrated: *tempered* by one exponent and offsets; *confusion* by a matrix; *families* by
  an exponent for each judge family; *one pass* by family exponents under emissions estimated once, from vote shares
  and known cells; names joined by commas are multiplied. `reference/calibration=pool` is **{recommended}**; with the
  misreading layer of `experiment=recommended`, whose place it takes, the figures are the same.
- *logistic stack* is a ridge regression of the states on vote shares and log RE-LCA posterior, its penalty by
  cross-validation: the rival to beat.
- Without known cells a calibration is its prior.

Remade by `python scripts/calibration.py`, from figures in [calibration.json](calibration.json): {date}, {machine},
{versions}. The panels are described with their licences in the folder `panels` of the shared data; `crowd_fact_eval`
is fitted to its gold cells and a random sample of the others, 3,000 in all.
"""


REMAINS = """## What the figures say, and what remains

- Dependent votes make every uncalibrated posterior too sure; a handful of numbers learned on known cells takes nearly
  all of that away, and which route is best differs less than whether there is one.
- No source is best everywhere. Latent classes that are fitted to convergence drift away from the states on
  llmjudge2024, where counting once and plain shares hold; on crowd_bluebird the clarity model is what finds the few
  good judges. Their product with learned exponents is, with the most known cells, the best or within .002 of the best
  on five panels; on crowd_bluebird tempering the posterior alone is better by .02, in which the other sources, having
  little to say there, are given too much.
- On llmjudge2024, ordinal grades of four steps, accuracy stays below that of plurality: offsets that make the
  probabilities true of rare grades move the most probable one. Shares of the families alone keep it, at a higher loss.
- Calibration errors above .05 are those of panels with few test cells (48 on crowd_bluebird, 201 on scifact_claude5),
  where the floor itself is near .05.
- Without known cells nothing here is reliably true: the prior of a calibration can be too sure or not sure enough.
- The prior scales of the calibrations are the same on all panels. They were chosen with these panels in sight, so their
  figures are somewhat better than those of a new panel would be.
"""


def write_report(record: dict, path: Path) -> None:
    """Write the page."""
    rows = pd.DataFrame(record["rows"])
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    parts = [
        INTRODUCTION.format(recommended=RECOMMENDED, date=record["date"], machine=record["machine"], versions=versions),
        "## In short",
        "",
        *_summary(rows),
        "",
        REMAINS,
    ]
    for panel, of_panel in rows.groupby("panel", sort=False):
        for known, table in of_panel.groupby("known"):
            parts += [f"## {panel}, {known} known cells", "", *_table(table), ""]
    path.write_text("\n".join(parts), encoding="utf-8")


def _summary(rows: pd.DataFrame) -> list[str]:
    """Compare the recommended route with plurality and with the best other method of each panel."""
    lines = [
        "| panel | known | accuracy | plurality | ECE | floor | log loss | best other | its log loss | difference |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for panel, of_panel in rows.groupby("panel", sort=False):
        for known in sorted(set(of_panel["known"]) - {0}):
            table = of_panel[of_panel["known"] == known].pivot(
                index="seed", columns="method", values=[*SCORES, "floor"]
            )
            loss = table["log_loss"]
            others = loss.drop(columns=[c for c in loss if c == RECOMMENDED]).mean()
            best = others.idxmin()
            difference = loss[RECOMMENDED] - loss[best]
            own = table.xs(RECOMMENDED, axis=1, level=1).mean()
            mean_floor = of_panel.loc[of_panel["known"] == known, "floor"].mean()
            floor = f"{mean_floor:.3f}" if np.isfinite(mean_floor) else "–"
            lines.append(
                f"| {panel} | {known} | {own['accuracy']:.3f} | {table['accuracy']['plurality'].mean():.3f} | "
                f"{own['ece']:.3f} | {floor} | {own['log_loss']:.4f} | {best} | {others[best]:.4f} | "
                f"{difference.mean():+.4f} ± {difference.sem():.4f} |"
            )
    return lines


def _table(rows: pd.DataFrame) -> list[str]:
    mean = rows.groupby("method", sort=False)[list(SCORES)].mean()
    error = rows.groupby("method", sort=False)[list(SCORES)].sem()
    lines = ["| method | accuracy | ECE | log loss | Brier |", "|---|---|---|---|---|"]
    for method, one in mean.iterrows():
        cells = [
            f"{one[name]:.{digits}f}"
            + ("" if pd.isna(error.loc[method, name]) else f" ± {error.loc[method, name]:.{digits}f}")
            for name, digits in (("accuracy", 3), ("ece", 3), ("log_loss", 4), ("brier", 3))
        ]
        name = f"**{method}**" if method == RECOMMENDED else method
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines
