"""The flow on one page: tables → panel → fit → reference → audit → files. No other module knows all of it."""

import json
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import pandas as pd
import xarray as xr
from jax import Array
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from evidial_bayes.audit import Uncertainty, audit
from evidial_bayes.config import ReferenceSettings, build, reference_settings
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.demo import table_path
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel, build_panel
from evidial_bayes.data.simulate import SimulatedPanel, simulate_panel
from evidial_bayes.data.simulation_settings import SimulationSettings
from evidial_bayes.data.tables import (
    check_cells,
    check_predictions,
    check_votes,
    read_cells,
    read_predictions,
    read_votes,
)
from evidial_bayes.export import console, figures, tables
from evidial_bayes.inference.checks import run_checks
from evidial_bayes.inference.identification import identify
from evidial_bayes.inference.result import describe
from evidial_bayes.inference.verdict import Check
from evidial_bayes.metrics.landscape import state_shares
from evidial_bayes.models.base import MeasurementModel
from evidial_bayes.reference.base import Reference, resolved_below
from evidial_bayes.reference.calibrate import calibrate
from evidial_bayes.reference.calibration_checks import calibration_checks
from evidial_bayes.reference.posterior import posterior_reference
from evidial_bayes.reference.voting import plurality

log = logging.getLogger(__name__)

_TABLES = {"votes", "cells"}  # keys of a group `data` that names files; others describe a simulated panel
MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class Parts:
    """What a run is made of: everything that the configuration names, built before any table is read."""

    key: Array
    codebook: Codebook
    model: MeasurementModel
    sampler: Any
    thresholds: Any
    reference: ReferenceSettings
    uncertainty: Uncertainty


@dataclass(frozen=True, eq=False)
class Fitted:
    """The reference of a run, the files written so far, and what to print of it."""

    reference: Reference
    files: list[Path]
    report: list[Table]


def run_audit(config: DictConfig, out: Path) -> None:
    """Audit predictions against the posterior of the states, fitted here or taken up from ``reference.from``.

    Parameters
    ----------
    config
        Configuration of the schema ``Audit``.
    out
        Folder for the results.

    Raises
    ------
    InputError
        Anything in the configuration or the tables that has to change; raised before any file is written.
    """
    parts = _build(config)
    panel, predictions = _read(config, parts.codebook, with_predictions=True)
    fitted = _fit(config, parts, panel, out)
    rival = plurality(panel)
    result = audit(_stage(parts.key, "audit"), predictions, panel, fitted.reference, parts.uncertainty, rival=rival)
    table, ci_prob = result.table, parts.uncertainty.ci_prob
    log.info("audit: %d systems, %s draws", result.draws.sizes["system"], f"{result.draws.sizes['draw']:,}")
    folder = out / "figures"
    files = [
        *fitted.files,
        tables.write_table(table, out / "audit.csv"),
        tables.write_table(table, out / "audit.parquet"),
        figures.save(figures.ucr(table, rival.name, ci_prob), folder / "ucr.png"),
        figures.save(figures.hit_caliber_coverage(table, ci_prob), folder / "hit_caliber_coverage.png"),
    ]
    console.report(*fitted.report, console.audit_table(table, ci_prob), console.ETHICS, console.files_text(files, out))


def run_fit(config: DictConfig, out: Path) -> None:
    """Fit the votes and write the reference; arguments and errors as for `run_audit`."""
    parts = _build(config)
    if parts.reference.source is not None:
        raise InputError("reference.from: `fit` always fits anew; `evidial audit` takes up an earlier fit.")
    panel, _ = _read(config, parts.codebook, with_predictions=False)
    fitted = _fit(config, parts, panel, out)
    console.report(*fitted.report, console.ETHICS, console.files_text(fitted.files, out))


def run_simulate(config: DictConfig, out: Path) -> None:
    """Draw a panel with known truth, written as the three tables; arguments and errors as for `run_audit`."""
    if _TABLES <= set(config.data):
        raise InputError("data: `simulate` draws its tables; allowed: data=simulate.")
    simulated = _simulate(config, _codebook(config))
    drawn = {name: getattr(simulated, name) for name in ("votes", "cells", "predictions", "truth")}
    files = tables.write_simulation({name: table for name, table in drawn.items() if len(table)}, out)
    log.info("simulated: %s cells, %s votes", f"{len(simulated.cells):,}", f"{len(simulated.votes):,}")
    console.report(console.files_text(files, out))


COMMANDS: Mapping[str, Callable[[DictConfig, Path], None]] = {
    "audit": run_audit,
    "fit": run_fit,
    "simulate": run_simulate,
}


def _build(config: DictConfig) -> Parts:
    return Parts(
        key=jax.random.key(_seed(config)),
        codebook=_codebook(config),
        model=build(config, "model"),
        sampler=build(config, "inference"),
        thresholds=build(config, "checks"),
        reference=reference_settings(config),
        uncertainty=build(config, "uncertainty"),
    )


def _read(config: DictConfig, codebook: Codebook, *, with_predictions: bool) -> tuple[Panel, pd.DataFrame | None]:
    """Read or simulate all tables, and check all of them."""
    predictions = None
    if _TABLES <= set(config.data):
        votes = read_votes(_path(config.data.votes), codebook)
        cells = read_cells(_path(config.data.cells), codebook)
        if with_predictions:
            predictions = read_predictions(_path(config.data.predictions), codebook, cells)
    else:
        simulated = _simulate(config, codebook)
        votes = check_votes(simulated.votes, codebook, "simulated votes")
        cells = check_cells(simulated.cells, codebook, "simulated cells")
        if with_predictions:
            predictions = check_predictions(simulated.predictions, codebook, cells, "simulated predictions")
    panel = build_panel(votes, cells, codebook, config.gate.min_valid_share)
    n_judges, n_votes = len(panel.coords["judge"]), len(panel.vote_cell)
    log.info("panel: %s cells, %d judges, %s valid votes", f"{len(panel.cells):,}", n_judges, f"{n_votes:,}")
    return panel, predictions


def _fit(config: DictConfig, parts: Parts, panel: Panel, out: Path) -> Fitted:
    """Fit, or take up a fit; check it and make the reference of it."""
    files = []
    settings, ci_prob = parts.reference, parts.uncertainty.ci_prob
    # A calibration learns from cells that the fit did not see as known.
    seen = panel if settings.calibration is None else panel.hidden()
    checks = _identify(parts, seen)
    if settings.source is not None:
        fit = _take_up(Path(settings.source).expanduser(), parts.model, seen)
        log.info("fit: taken up from %s", settings.source)
    else:
        fit = parts.sampler.fit(_stage(parts.key, "fit"), parts.model, seen)
        fit.attrs["config"] = json.dumps(OmegaConf.to_container(config, resolve=True))
        files.append(tables.write_posterior(fit, out / tables.POSTERIOR))
        sizes = fit["posterior"].sizes
        log.info("fit: %d chains of %s draws", sizes["chain"], f"{sizes['draw']:,}")
    checks += run_checks(fit, seen, parts.thresholds)
    reference = posterior_reference(fit, parts.model, seen, draws=settings.draws)
    if settings.calibration is not None:
        key = _stage(parts.key, "calibration")
        calibrated = calibrate(key, settings.calibration, reference, fit, parts.model, panel)
        reference = calibrated.reference
        checks += calibration_checks(calibrated.parameters, panel, parts.thresholds)
        learned = tables.calibration_table(calibrated.parameters, ci_prob)
        files.append(tables.write_table(learned, out / "calibration.csv"))
    reference = resolved_below(reference, settings.max_entropy)
    log.info("checks: %s", tables.worst(checks))
    shares = state_shares(_stage(parts.key, "shares"), reference, panel)
    files += [
        tables.write_table(tables.reference_table(reference), out / "reference.parquet"),
        tables.write_table(panel.judges.reset_index(), out / "judges.csv"),
        tables.write_checks(checks, out / "checks.json"),
        figures.save(figures.state_composition(shares, ci_prob), out / "figures" / "state_composition.png"),
    ]
    report = [
        console.panel_summary(panel),
        console.checks_table(checks),
        console.shares_table(shares, ci_prob),
    ]
    return Fitted(reference, files, report)


def _identify(parts: Parts, panel: Panel) -> list[Check]:
    """Say before the fit what the votes cannot tell of the model."""
    checks = identify(parts.model, panel, parts.thresholds)
    for check in checks:
        if check.status != "PASS":
            log.info("%s (%s): %s", check.status, check.name, check.advice)
    return checks


def _take_up(folder: Path, model: MeasurementModel, panel: Panel) -> xr.DataTree:
    """Read the fit of an earlier run, if it is a fit of the same model to the same panel."""
    if not folder.is_dir():
        raise InputError(f"reference.from={folder}: there is no such folder.")
    fit = tables.read_posterior(folder / tables.POSTERIOR)
    advice = "Give the same settings and tables as in that run, or fit anew."
    if not {"model", "codebook", "panel_hash"} <= fit.attrs.keys():
        raise InputError(f"{folder / tables.POSTERIOR}: is no posterior of this program's.")
    if fit.attrs["codebook"] != panel.codebook.name:
        there, here = fit.attrs["codebook"], panel.codebook.name
        raise InputError(f"reference.from={folder}: its codebook is '{there}', here it is '{here}'. {advice}")
    # Through JSON and back, as the fit's own record went.
    found = list(_differences(json.loads(fit.attrs["model"]), json.loads(json.dumps(describe(model))), "model"))
    if found:
        raise InputError(f"reference.from={folder}: another model: {'; '.join(found[:3])}. {advice}")
    if fit.attrs["panel_hash"] != panel.hash:
        sizes, n_cells, n_votes = fit["constant_data"].sizes, len(panel.cells), len(panel.vote_cell)
        both = f"{sizes['cell']} cells and {sizes['vote_id']} valid votes there, {n_cells} and {n_votes} here"
        raise InputError(f"reference.from={folder}: another panel ({both}). {advice}")
    return fit


def _differences(there: object, here: object, key: str) -> Iterator[str]:
    """Say where two settings differ, by dotted key."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in {**there, **here}:  # in the order in which they are written
            yield from _differences(there.get(name), here.get(name), f"{key}.{name}")
    elif there != here:
        yield f"{key} is {json.dumps(there)} there and {json.dumps(here)} here"


def _codebook(config: DictConfig) -> Codebook:
    mapping: Any = OmegaConf.to_container(config.codebook, resolve=True)
    return Codebook.from_mapping(mapping)


def _simulate(config: DictConfig, codebook: Codebook) -> SimulatedPanel:
    settings: Any = OmegaConf.to_container(config.data, resolve=True)
    return simulate_panel(_seed(config), SimulationSettings.from_mapping(settings), codebook)


def _seed(config: DictConfig) -> int:
    if not 0 <= config.seed <= MAX_SEED:
        raise InputError(f"seed={config.seed}: allowed are whole numbers from 0 to {MAX_SEED}.")
    return int(config.seed)


def _path(text: str) -> Path:
    return table_path(str(text)).expanduser()


def _stage(key: Array, name: str) -> Array:
    """Random key of a stage, by name: adding or leaving out a stage changes nothing in the others."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))
