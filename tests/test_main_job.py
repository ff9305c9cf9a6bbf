"""The main job on real and on paper-shaped votes: fit, reference, audit."""

from itertools import combinations

import jax
import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from evidial_bayes.audit import Uncertainty, audit, audit_draws
from evidial_bayes.config import conf_dir
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.demo import demo_path
from evidial_bayes.data.panel import build_panel
from evidial_bayes.data.tables import read_cells, read_predictions, read_votes
from evidial_bayes.inference.checks import run_checks
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.inference.verdict import Thresholds
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.reference.posterior import posterior_reference
from evidial_bayes.reference.voting import plurality

SOURCES = ("states", "parameters", "participants")


def codebook(name):
    return Codebook.from_mapping(OmegaConf.load(conf_dir() / "codebook" / f"{name}.yaml"))


def read(book, votes, cells, predictions):
    table = read_cells(cells, book)
    return build_panel(read_votes(votes, book), table, book), read_predictions(predictions, book, table)


@pytest.fixture(scope="module")
def healthver(shared_data):
    folder = shared_data / "healthver"
    panel, predictions = read(codebook("fact_check"), *(folder / f"{t}.csv" for t in ("votes", "cells", "predictions")))
    model = LatentClass()
    fit = NUTS(progress=False).fit(jax.random.key(0), model, panel)
    return panel, predictions, fit, posterior_reference(fit, model, panel)


@pytest.fixture(scope="module")
def demo():
    panel, predictions = read(codebook("evidial"), *(demo_path(t) for t in ("votes", "cells", "predictions")))
    model = LatentClass()
    # Enough draws for an audit; what the fit itself must reach is a recorded run.
    fit = NUTS(num_warmup=300, num_samples=250, progress=False).fit(jax.random.key(0), model, panel)
    return panel, predictions, posterior_reference(fit, model, panel)


def test_healthver_fit_is_sound(healthver):
    panel, _, fit, _ = healthver
    assert {check.name: check.status for check in run_checks(fit, panel, Thresholds())} == dict.fromkeys(
        (
            "r_hat",
            "ess_bulk",
            "ess_tail",
            "divergences",
            "e_bfmi",
            "modes",
            "class_order",
            "diagonal",
            "empty_class",
            "zero_sigma",
            "runaway_sigma",
        ),
        "PASS",
    )


def test_healthver_state_shares_are_those_of_an_independent_program(healthver):
    """An independent program with weak diagonal priors found .54 / .16 / .03 / .27."""
    panel, _, _, reference = healthver
    absent, partial, conflicting, *sufficient = reference.probability.mean(0)
    assert len(panel.cells) == 500
    np.testing.assert_allclose([absent, partial, conflicting, sum(sufficient)], [0.54, 0.16, 0.03, 0.27], atol=0.02)


def test_healthver_audit_counts_what_a_spreadsheet_would(healthver):
    panel, predictions, _, reference = healthver
    settings = Uncertainty(draws=500)
    table = audit(jax.random.key(1), predictions, panel, reference, settings, rival=plurality(panel)).table
    wide = table.set_index(["model", "method", "metric"])["estimate"].unstack()
    assert len(wide) == 9
    merged = predictions.merge(panel.cells["native_label"], left_on="cell_id", right_index=True)
    for system, rows in merged.groupby(["model", "method"]):
        answered = rows[~rows["prediction"].isin(["abstain", "failed"])]
        assert wide.loc[system, "coverage"] == pytest.approx(len(answered) / len(rows))
        right = (answered["prediction"] == answered["native_label"]).mean()
        assert wide.loc[system, "accuracy"] == pytest.approx(right)
    shares = ["correct_supported", "correct_unsupported", "correct_opposed", "correct_unresolved"]
    np.testing.assert_allclose(wide[[*shares, "incorrect", "not_answered"]].sum(axis=1), 1)
    assert (table["lower"] <= table["estimate"] + 1e-12).all()
    assert (table["estimate"] <= table["upper"] + 1e-12).all()


def test_another_source_of_uncertainty_never_narrows_the_mean_width_on_the_demo(demo):
    panel, predictions, reference = demo
    width, error = {}, {}
    for size in range(4):
        for on in combinations(SOURCES, size):
            # Many draws: the ends of an interval of 4,000 have an error of their own that hides small sources.
            settings = Uncertainty(draws=40_000, **{source: source in on for source in SOURCES})
            draws = audit_draws(jax.random.key(2), predictions, panel, reference, settings)
            batches = [mean_width(draws.isel(draw=slice(i, None, 10))) for i in range(10)]
            width[frozenset(on)] = mean_width(draws)
            error[frozenset(on)] = np.std(batches, ddof=1) / np.sqrt(len(batches))
    assert width[frozenset()] == 0
    for on, wide in width.items():
        for source in on:
            fewer = on - {source}
            slack = 2 * np.hypot(error[on], error[fewer])
            assert wide >= width[fewer] - slack, f"{sorted(on)} is narrower than without {source}"
    # All three together are wider than the conditional bootstrap, beyond any Monte Carlo error.
    conditional = frozenset({"participants"})
    assert width[frozenset(SOURCES)] > width[conditional] + 2 * np.hypot(error[frozenset(SOURCES)], error[conditional])


def mean_width(draws):
    """Width of the 95 % intervals of UCR and hit caliber, averaged over systems."""
    ends = draws[["ucr", "hit_caliber"]].quantile([0.025, 0.975], "draw")
    return float(ends.diff("quantile").mean("system").to_array().mean())


def test_the_demo_reference_finds_the_states_that_made_the_votes(demo):
    panel, _, reference = demo
    truth = pd.read_csv(demo_path("truth"), dtype=str).set_index("cell_id")["state"]
    codes = pd.Index(panel.codebook.states).get_indexer(truth[panel.cells.index])
    p = reference.probability
    # Calibrated probabilities: the expected and the found number of hits agree within three standard errors of the
    # found one, and three posterior standard deviations of the expected one.
    hits, expected = (reference.map_state == codes).mean(), p.max(1).mean()
    by_draw = reference.conditional[:, reference.pattern].max(-1).mean(1)
    assert abs(hits - expected) < 3 * (np.sqrt(expected * (1 - expected) / len(p)) + by_draw.std())
