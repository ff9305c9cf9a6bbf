"""Whole runs on a small simulated panel: what is written, what is taken up, and the same flow from Python."""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from PIL import Image

from evidial_bayes import cli, pipeline
from evidial_bayes.config import build, conf_dir
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.export import tables

SMALL = ("experiment=quick", "data=simulate", "data.n_participants=30", "progress=false")
FIT_FILES = {
    "posterior.nc",
    "reference.parquet",
    "judges.csv",
    "checks.json",
    "figures/state_composition.png",
}
AUDIT_FILES = {"audit.csv", "audit.parquet", "figures/ucr.png", "figures/hit_caliber_coverage.png"}


def composed(command, *overrides):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose(command, list(overrides))


def files(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    out = tmp_path_factory.mktemp("fit")
    pipeline.run_fit(composed("fit", *SMALL), out)
    return out


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    out = tmp_path_factory.mktemp("audit")
    pipeline.run_audit(composed("audit", *SMALL), out)
    return out


def test_fit_writes_the_reference(fitted):
    assert files(fitted) == FIT_FILES


def test_audit_writes_everything(audited):
    assert files(audited) == FIT_FILES | AUDIT_FILES


def test_posterior_is_an_arviz_tree_that_knows_its_settings(fitted):
    with xr.open_datatree(fitted / "posterior.nc", engine="h5netcdf") as fit:
        assert {"posterior", "sample_stats", "log_likelihood", "observed_data"} <= set(fit.children)
        assert fit["posterior"].sizes["chain"] == 2
        assert fit["posterior"].sizes["draw"] == 100
        config = json.loads(fit.attrs["config"])
    assert config["data"]["n_participants"] == 30
    assert config["model"]["sigma"]["scale"] == 1.0, "interpolations are resolved"


def test_reference_covers_every_planned_cell(fitted):
    reference = pd.read_parquet(fitted / "reference.parquet")
    states = [column for column in reference if column.startswith("p_")]
    assert len(states) == 5
    np.testing.assert_allclose(reference[states].sum(axis=1), 1)
    assert reference["cell"].is_unique
    largest = reference[states].to_numpy().argmax(axis=1)
    assert list(reference["map_state"]) == [states[s].removeprefix("p_") for s in largest]
    assert not reference.loc[reference["n_votes"] == 0, "resolved"].any()


def test_audit_table_is_the_same_in_both_files(audited):
    csv, parquet = pd.read_csv(audited / "audit.csv"), pd.read_parquet(audited / "audit.parquet")
    pd.testing.assert_frame_equal(csv, parquet)
    assert not csv.duplicated(["model", "method", "metric"]).any()
    assert {"plurality_estimate", "conditional_lower", "share_states"} <= set(csv)
    systems = csv.groupby(["model", "method"]).ngroups
    assert systems == 12
    accuracy = csv[csv["metric"] == "accuracy"]
    assert accuracy["estimate"].between(0, 1).all()


def test_checks_and_judges_are_read_back(fitted):
    checks = json.loads((fitted / "checks.json").read_text(encoding="utf-8"))
    assert checks["status"] in tables.STATUSES
    assert {"name", "status", "value", "threshold", "advice"} <= set(checks["checks"][0])
    judges = pd.read_csv(fitted / "judges.csv")
    assert list(judges["judge"]) == ["judge_1", "judge_2", "judge_3"]
    counted = judges["n_valid"] + judges["n_invalid"] + judges["n_missing"]
    np.testing.assert_array_equal(counted, judges["n_votes"])


def test_figures_are_pictures(audited):
    for name in ("state_composition", "ucr", "hit_caliber_coverage"):
        with Image.open(audited / "figures" / f"{name}.png") as image:
            image.verify()
            assert image.width >= 1000


# ------------------------------------------------------------------ taking up a fit


def test_audit_of_a_taken_up_fit_is_that_of_a_fresh_one(fitted, audited, tmp_path):
    pipeline.run_audit(composed("audit", *SMALL, f"reference.from='{fitted}'"), tmp_path)
    assert files(tmp_path) == (FIT_FILES | AUDIT_FILES) - {"posterior.nc"}
    again, fresh = pd.read_parquet(tmp_path / "audit.parquet"), pd.read_parquet(audited / "audit.parquet")
    pd.testing.assert_frame_equal(again, fresh)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.dependence=none", r'model\.dependence is "clarity" there and "none" here'),
        ("prior.sigma.scale=2", r"model\.sigma\.scale is 1\.0 there and 2\.0 here"),
        ("quadrature=paper_grid", r'model\.quadrature\.type is "GaussHermite" there and "PaperGrid" here'),
        (
            "model.prevalence_formula='~ source'",
            r"model\.prevalence_formula is .* there and \"~ source\" here",
        ),
        ("codebook=fact_check", r"its codebook is 'evidial', here it is 'fact_check'"),
        ("seed=1", r"another panel \(240 cells and \d+ valid votes there, 240 and \d+ here\)"),
    ],
)
def test_fit_of_something_else_is_refused_with_what_differs(fitted, tmp_path, override, message):
    # Another codebook cannot simulate the paper's sources, so its panel is drawn from its own.
    config = composed("audit", *SMALL, f"reference.from='{fitted}'", override)
    with pytest.raises(InputError, match=message):
        pipeline.run_audit(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_missing_fit_is_refused(tmp_path):
    config = composed("audit", *SMALL, f"reference.from='{tmp_path}/nowhere'")
    with pytest.raises(InputError, match=r"nowhere: there is no such folder"):
        pipeline.run_audit(config, tmp_path)
    (tmp_path / "empty").mkdir()
    config = composed("audit", *SMALL, f"reference.from='{tmp_path}/empty'")
    with pytest.raises(InputError, match=r"posterior\.nc: there is no such file"):
        pipeline.run_audit(config, tmp_path)


def test_foreign_posterior_is_refused(tmp_path):
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), np.zeros((1, 4)))})})
    tables.write_posterior(tree, tmp_path / "posterior.nc")
    config = composed("audit", *SMALL, f"reference.from='{tmp_path}'")
    with pytest.raises(InputError, match="no posterior of this program"):
        pipeline.run_audit(config, tmp_path)


def test_fit_does_not_take_up_a_fit(fitted, tmp_path):
    with pytest.raises(InputError, match=r"reference\.from"):
        pipeline.run_fit(composed("fit", *SMALL, f"reference.from='{fitted}'"), tmp_path)


# ------------------------------------------------------------------ refusals and interruptions


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.prevalence_formula='~ soruce'", r"'soruce'.* Did you mean 'source'\?"),
        ("model.prevalence_formula='~ source +'", "prevalence_formula"),
        ("model.dependence=clear", r"model\.dependence='clear'"),
        ("inference.num_samples=0", r"inference\.num_samples"),
        ("uncertainty.ci_prob=95", r"uncertainty\.ci_prob"),
        ("seed=-1", r"seed=-1"),
        ("data.n_participants=1", r"n_participants"),
        ("gate.min_valid_share=2", r"min_valid_share"),
    ],
)
def test_a_setting_that_cannot_be_used_leaves_no_file(tmp_path, override, message):
    with pytest.raises(InputError, match=message):
        pipeline.run_audit(composed("audit", *SMALL, override), tmp_path)
    assert not list(tmp_path.iterdir())


def test_interrupted_run_leaves_only_whole_files(fitted, tmp_path, monkeypatch):
    def half(self, file, **_):
        Path(file).write_text("model,", encoding="utf-8")
        raise KeyboardInterrupt

    config = composed("audit", *SMALL, f"reference.from='{fitted}'")
    to_csv = pd.DataFrame.to_csv
    monkeypatch.setattr(
        pd.DataFrame,
        "to_csv",
        lambda self, file, **k: (half if "metric" in self else to_csv)(self, file, **k),
    )
    with pytest.raises(KeyboardInterrupt):
        pipeline.run_audit(config, tmp_path)
    assert files(tmp_path) == FIT_FILES - {"posterior.nc"}
    pd.read_parquet(tmp_path / "reference.parquet")


# ------------------------------------------------------------------ simulate, and your own tables


def test_simulated_tables_can_be_audited_as_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["simulate", "data.n_participants=30", "seed=3", "hydra.run.dir=panel"]) == 0
    assert {"votes.csv", "cells.csv", "predictions.csv", "truth.csv"} <= files("panel")
    named = [f"data.{name}=panel/{name}.csv" for name in ("votes", "cells", "predictions")]
    quick = ["experiment=quick", "progress=false"]
    assert cli.main(["audit", "data=tables", *named, *quick, "hydra.run.dir=own"]) == 0
    out = capsys.readouterr().out
    assert "Audit, 95% intervals" in out
    assert "never a person's health" in out
    assert "own/" not in out.split("Results in")[1].splitlines()[1]
    # The same panel without the detour through files: only the panel's seed differs from the run's.
    truth = pd.read_csv("panel/truth.csv")
    reference = pd.read_parquet("own/reference.parquet")
    assert sorted(truth["cell_id"]) == sorted(reference["cell"])


def test_equal_seeds_give_equal_panels(tmp_path):
    for name in ("a", "b"):
        pipeline.run_simulate(composed("simulate", "data.n_participants=20", "seed=5"), tmp_path / name)
    pipeline.run_simulate(composed("simulate", "data.n_participants=20", "seed=6"), tmp_path / "c")
    read = lambda name: (tmp_path / name / "votes.csv").read_bytes()  # noqa: E731
    assert read("a") == read("b") != read("c")


def test_simulate_refuses_tables(tmp_path):
    with pytest.raises(InputError, match="data=simulate"):
        pipeline.run_simulate(composed("simulate", "data=demo"), tmp_path)


# ------------------------------------------------------------------ from Python


def test_the_same_flow_from_python(tmp_path):
    from evidial_bayes.audit import Uncertainty, audit
    from evidial_bayes.data.demo import demo_path
    from evidial_bayes.data.panel import build_panel
    from evidial_bayes.data.tables import read_cells, read_predictions, read_votes
    from evidial_bayes.inference.nuts import NUTS
    from evidial_bayes.models.latent_class import LatentClass
    from evidial_bayes.reference.posterior import posterior_reference

    codebook = Codebook.from_mapping(OmegaConf.to_container(OmegaConf.load(conf_dir() / "codebook/evidial.yaml")))
    cells = read_cells(demo_path("cells"), codebook)
    votes, predictions = (
        read_votes(demo_path("votes"), codebook),
        read_predictions(demo_path("predictions"), codebook, cells),
    )

    panel = build_panel(votes, cells, codebook)
    model = LatentClass()
    fit = NUTS(num_warmup=50, num_samples=50, num_chains=2, max_tree_depth=5).fit(jax.random.key(0), model, panel)
    reference = posterior_reference(fit, model, panel)
    result = audit(jax.random.key(1), predictions, panel, reference, Uncertainty(draws=100))

    assert len(result.table)
    # What the command builds from YAML is the same model with the same numbers.
    command = build(composed("audit"), "model")
    np.testing.assert_array_equal(posterior_reference(fit, command, panel).probability, reference.probability)


def test_a_calibration_is_learned_on_known_cells(tmp_path):
    """The fit does not see the known states, and the reference knows them."""
    composed_simulation = composed("simulate", "data.n_participants=20", "seed=3")
    pipeline.run_simulate(composed_simulation, tmp_path / "tables")
    cells = pd.read_csv(tmp_path / "tables" / "cells.csv", dtype=str, keep_default_na=False)
    truth = pd.read_csv(tmp_path / "tables" / "truth.csv", dtype=str).set_index("cell_id")["state"]
    known = cells["cell_id"].iloc[::4]
    cells["known_state"] = cells["cell_id"].map(truth).where(cells["cell_id"].isin(known), "")
    cells["known_by"] = np.where(cells["cell_id"].isin(known), "sampled", "")
    cells.to_csv(tmp_path / "cells.csv", index=False)
    given = (
        "data=tables", f"data.votes={tmp_path}/tables/votes.csv", f"data.cells={tmp_path}/cells.csv",
        "progress=false", "reference/calibration=pool", "inference=map", "inference.num_starts=2",
    )  # fmt: skip
    config = composed("fit", *given)
    pipeline.run_fit(config, tmp_path / "out")
    assert files(tmp_path / "out") == FIT_FILES | {"calibration.csv"}
    table = pd.read_csv(tmp_path / "out" / "calibration.csv")
    assert set(table["parameter"]) == {"exponent", "offset"}
    assert (table["lower"] <= table["mean"]).all()
    assert (table["mean"] <= table["upper"]).all()
    reference = pd.read_parquet(tmp_path / "out" / "reference.parquet").set_index("cell")
    said = reference.loc[known, "map_state"]
    np.testing.assert_array_equal(said, truth[known])
    assert (reference.loc[known, "entropy"] == 0).all()
    names = {check["name"] for check in json.loads((tmp_path / "out" / "checks.json").read_text())["checks"]}
    assert {"parameters", "local_rank", "constant_judge", "few_votes", "modes", "calibration_cells"} <= names
    assert not {"r_hat", "ess_bulk"} & names
