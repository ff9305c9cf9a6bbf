"""How true state probabilities are on panels with gold states: writes docs/calibration.json and docs/calibration.md.

    python scripts/calibration.py                 all panels; about an hour on two cores, fits included
    python scripts/calibration.py scifact_claude5 babe_llm
    python scripts/calibration.py --report        the page alone, from the figures

Panels are those of ../shared/data/panels, which are not part of the project. Fits are kept in .cache/calibration.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import xarray as xr
from calibration_report import FLOOR_OF, RECOMMENDED, write_report
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from evidial_bayes import __version__
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import Panel, build_panel
from evidial_bayes.export.tables import read_posterior, write_posterior
from evidial_bayes.inference.compilation import use_compilation_cache
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.metrics.calibration import accuracy, brier_score, expected_calibration_error, log_loss
from evidial_bayes.models.emission.accuracy import OneCoin
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.priors import Misreading
from evidial_bayes.models.quadrature import GaussHermite
from evidial_bayes.reference.calibrate import calibrate
from evidial_bayes.reference.calibration import Calibration, Confusion, LogLinear
from evidial_bayes.reference.posterior import posterior_reference
from evidial_bayes.reference.voting import plurality, vote_share

PROJECT = Path(__file__).resolve().parents[1]
PANELS = PROJECT.parent / "shared" / "data" / "panels"
FITS = PROJECT / ".cache" / "calibration"
FIGURES = PROJECT / "docs" / "calibration.json"
NAMES = ("scifact_claude5", "babe_llm", "llmjudge2024", "crowd_bluebird", "crowd_rte", "crowd_fact_eval")
# Cells beyond those with gold that judges' emissions are learned from, in the one panel that has far more.
MOST_CELLS = 3000
SEEDS = range(5)
SCORES: dict[str, Callable] = {
    "accuracy": accuracy,
    "ece": expected_calibration_error,
    "log_loss": log_loss,
    "brier": brier_score,
}
# Short runs: with these many votes the posterior of the emissions is narrow, and Monte Carlo error far below that of
# the choice of known cells.
SAMPLER = NUTS(num_warmup=150, num_samples=75, num_chains=2, max_tree_depth=6, progress=False)
MODELS = {
    "Dawid–Skene": LatentClass(dependence="none", prevalence_formula="~ 1"),
    "one coin": LatentClass(dependence="none", prevalence_formula="~ 1", emission=OneCoin()),
    "RE-LCA": LatentClass(prevalence_formula="~ 1", quadrature=GaussHermite(9)),
    "family reading": LatentClass(
        prevalence_formula="~ 1", quadrature=GaussHermite(7), family_reading=Misreading(), dependence="none"
    ),
    "RE-LCA, misreading": LatentClass(prevalence_formula="~ 1", quadrature=GaussHermite(9), misreading=Misreading()),
}
POOL = LogLinear({"posterior": 0.135, "one_pass": None}, common=2.0)
CALIBRATIONS: dict[str, tuple[str, Calibration]] = {
    "vote share, tempered": ("Dawid–Skene", LogLinear({"vote_share": 0.7})),
    "family shares, tempered": ("Dawid–Skene", LogLinear({"family_shares": 0.7})),
    "Dawid–Skene, tempered": ("Dawid–Skene", LogLinear({"posterior": 0.2})),
    "Dawid–Skene, families": ("Dawid–Skene", LogLinear({"prevalence": 1.0, "families": 0.2})),
    "one coin, tempered": ("one coin", LogLinear({"posterior": 0.2})),
    "RE-LCA, tempered": ("RE-LCA", LogLinear({"posterior": 0.2})),
    "RE-LCA, confusion": ("RE-LCA", Confusion()),
    "RE-LCA, families": ("RE-LCA", LogLinear({"prevalence": 1.0, "families": 0.2})),
    "RE-LCA, shares": ("RE-LCA", LogLinear({"posterior": 0.15, "family_shares": 0.4})),
    "family reading, tempered": ("family reading", LogLinear({"posterior": 0.2})),
    "one pass": ("RE-LCA", LogLinear({"one_pass": None})),
    "RE-LCA, one pass": ("RE-LCA", POOL),
    "RE-LCA, misreading, one pass": ("RE-LCA, misreading", POOL),
    RECOMMENDED: ("RE-LCA", LogLinear({"posterior": 0.135, "one_pass": None, "family_shares": 0.3}, common=2.0)),
}
# Where every judge is a family of its own these say what others say.
OF_FAMILIES = ("family reading", "family shares, tempered", "Dawid–Skene, families", "RE-LCA, families")


def load(name: str) -> tuple[Panel, np.ndarray]:
    """Read a panel and the gold state of every cell, −1 where there is none."""
    folder = PANELS / name
    file = next(path for path in (folder / "votes.csv.gz", folder / "votes.csv") if path.is_file())
    votes = pd.read_csv(file, dtype=str, keep_default_na=False).rename(columns={"item_id": "cell_id"})
    gold = pd.read_csv(folder / "labels.csv", dtype=str, keep_default_na=False).set_index("item_id")["gold"]
    states = sorted(gold.unique())
    book = Codebook.from_mapping(
        {"name": name, "states": states, "categories": states, "labels": [], "supports": dict.fromkeys(states),
         "sufficient": []}
    )  # fmt: skip
    ids = pd.Index(votes["cell_id"].unique())
    if len(ids) > MOST_CELLS:
        rest = np.random.default_rng(0).choice(ids.difference(gold.index), MOST_CELLS - len(gold), replace=False)
        votes = votes[votes["cell_id"].isin({*gold.index, *rest})]
    votes["replicate"] = votes.groupby(["cell_id", "judge"]).cumcount().astype(str)
    cells = pd.DataFrame({"cell_id": votes["cell_id"].unique()})
    cells["participant_id"] = cells["cell_id"]
    wanted = [c for c in ("cell_id", "judge", "vote", "replicate", "judge_family") if c in votes]
    panel = build_panel(votes[wanted], cells, book, min_valid_share=0.2)
    return panel, pd.Index(states).get_indexer(cells["cell_id"].map(gold))


def fit(name: str, model_name: str, panel: Panel) -> tuple[xr.DataTree, float]:
    """Fit a model to the votes alone, or take up an earlier fit of the same."""
    path = FITS / f"{name}_{model_name.replace(' ', '_').replace(',', '')}.nc"
    if path.is_file():
        tree = read_posterior(path)
        if tree.attrs["panel_hash"] == panel.hash:
            return tree, float(tree.attrs["seconds"])
    start = time.perf_counter()
    tree = SAMPLER.fit(jax.random.key(0), MODELS[model_name], panel)
    tree.attrs["seconds"] = time.perf_counter() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    write_posterior(tree, path)
    return tree, tree.attrs["seconds"]


def known_cells(gold: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Draw cells whose state is taken as known."""
    return np.random.default_rng(seed).choice(np.flatnonzero(gold >= 0), number, replace=False)


def stack(features: np.ndarray, known: np.ndarray, state: np.ndarray, n_states: int) -> np.ndarray:
    """Multinomial logistic regression on the known cells, its ridge chosen by five-fold cross-validation."""
    x = np.column_stack([np.ones(len(features)), (features - features.mean(0)) / (features.std(0) + 1e-9)])

    def coefficients(rows: np.ndarray, ridge: float) -> np.ndarray:
        y = np.eye(n_states)[state[rows]]

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            w = flat.reshape(-1, n_states)
            log_p = log_softmax(x[rows] @ w, axis=1)
            shrunk = np.vstack([np.zeros(n_states), w[1:]])
            gradient = x[rows].T @ (np.exp(log_p) - y) + ridge * shrunk
            return float(-(y * log_p).sum() + 0.5 * ridge * (shrunk**2).sum()), gradient.ravel()

        return minimize(loss, np.zeros(x.shape[1] * n_states), jac=True, method="L-BFGS-B").x.reshape(-1, n_states)

    def held_back(ridge: float) -> float:
        total = 0.0
        for fold in range(5):
            out = known[fold::5]
            log_p = log_softmax(x[out] @ coefficients(np.setdiff1d(known, out), ridge), axis=1)
            total -= log_p[np.arange(len(out)), state[out]].sum()
        return total

    ridge = min((0.1, 0.3, 1.0, 3.0, 10.0, 30.0), key=held_back)
    return softmax(x @ coefficients(known, ridge), axis=1)


def score(probability: np.ndarray, state: np.ndarray) -> dict[str, float]:
    """All scores of one set of probabilities."""
    return {name: float(metric(probability, state)) for name, metric in SCORES.items()}


def floor(probability: np.ndarray, seed: int) -> float:
    """Calibration error that perfectly true probabilities would have on these cells: the mean over simulated states."""
    rng = np.random.default_rng(seed)
    below = probability.cumsum(1)[:, :-1]
    draws = ((below < rng.random((len(below), 1))).sum(1) for _ in range(100))
    return float(np.mean([expected_calibration_error(probability, state) for state in draws]))


def study(name: str) -> Iterator[dict]:
    """Score every method on one panel: rows of panel, known, method, seed and scores."""
    panel, gold = load(name)
    has_gold = np.flatnonzero(gold >= 0)
    families = panel.judges.loc[panel.coords["judge"], "judge_family"].nunique()
    several = 1 < families < len(panel.coords["judge"])
    print(f"{name}: {panel}, {len(has_gold)} cells with gold, {families} families", flush=True)
    used = [m for m in MODELS if several or m not in OF_FAMILIES]
    fits = {m: fit(name, m, panel) for m in used}
    references = {m: posterior_reference(tree, MODELS[m], panel) for m, (tree, _) in fits.items()}
    print("  fits: " + ", ".join(f"{m} {seconds:.0f} s" for m, (_, seconds) in fits.items()), flush=True)
    smoothed = {"plurality": plurality(panel).probability, "vote share": vote_share(panel).probability}
    n_states = len(panel.codebook.states)
    raw = {m: 0.98 * p + 0.02 / n_states for m, p in smoothed.items()}
    raw |= {m: reference.probability for m, reference in references.items()}
    numbers = (0, 60, 120) if len(has_gold) > 240 else (0, 30, 60)
    for number in numbers:
        for seed in SEEDS:
            known = known_cells(gold, number, seed)
            test = np.setdiff1d(has_gold, known)

            def row(
                method: str, p: np.ndarray, test: np.ndarray = test, seed: int = seed, number: int = number
            ) -> dict:
                cells = {"panel": name, "known": number, "seed": seed, "method": method, "cells": len(test)}
                return cells | score(p[test], gold[test])

            if number or not seed:
                yield from (row(m, p) for m, p in raw.items())
            state = np.full(len(gold), -1)
            state[known] = gold[known]
            for method, (m, calibration) in CALIBRATIONS.items():
                if m in fits and (number or not seed) and (several or method not in OF_FAMILIES):
                    seen = replace(panel, known=state)
                    found = calibrate(
                        jax.random.key(seed), calibration, references[m], fits[m][0], MODELS[m], seen, warmup=300
                    )
                    scored = row(method, found.reference.probability)
                    if method == FLOOR_OF:
                        scored["floor"] = floor(found.reference.probability[test], seed)
                    yield scored
            if number:
                features = np.column_stack([raw["vote share"], np.log(np.maximum(raw["RE-LCA"], 1e-7))])
                yield row("logistic stack", stack(features, known, gold, n_states))


def main() -> None:
    """Run the study on the panels named on the command line, all of them without."""
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")] or list(NAMES)
    if unknown := [name for name in wanted if name not in NAMES]:
        sys.exit(f"There is no panel {', '.join(unknown)}; allowed: {', '.join(NAMES)}.")
    if not PANELS.is_dir():
        sys.exit("The panels lie in ../shared/data/panels beside the project, which is not distributed with it.")
    record = json.loads(FIGURES.read_text()) if FIGURES.is_file() else {"rows": []}
    if "--report" not in sys.argv:
        use_compilation_cache()
        jax.config.update("jax_enable_x64", True)  # noqa: FBT003
        for name in wanted:
            rows = list(study(name))
            record["rows"] = [row for row in record["rows"] if row["panel"] != name] + rows
            record |= {
                "date": datetime.now(UTC).date().isoformat(),
                "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
                "versions": {"evidial-bayes": __version__, **{p: version(p) for p in ("jax", "numpyro")}},
            }
            FIGURES.write_text(json.dumps(record, indent=0) + "\n")
    write_report(record, PROJECT / "docs" / "calibration.md")


if __name__ == "__main__":
    main()
