"""The posterior mode against closed forms, and as maximum likelihood against randomLCA, poLCA and Dawid & Skene."""

import json

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.inference.map import MAP
from evidial_bayes.models.emission.dirichlet import DiagonalDirichlet
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.priors import SymmetricDirichlet
from evidial_bayes.models.quadrature import GaussHermite
from evidial_bayes.reference.posterior import posterior_reference

LOADINGS = {"const": "shared", "vary": "judge", "byclass": "state"}


def book(states, categories):
    """Codebook of unnamed classes: the first categories name the first classes."""
    reads = {state: categories[min(k, len(categories) - 1)] for k, state in enumerate(states)}
    return Codebook.from_mapping({"name": "classes", "states": states, "categories": categories, "labels": [],
                                  "supports": dict.fromkeys(states), "sufficient": [], "reads": reads})  # fmt: skip


def pattern_panel(folder, name, n_classes):
    """Panel of a table of answer patterns with their frequencies, or of one row a cell."""
    table = pd.read_csv(folder / "oracles" / f"lca_{name}.csv")
    if "freq" in table:
        table = table.loc[table.index.repeat(table["freq"])].drop(columns="freq").reset_index(drop=True)
    table["cell_id"] = [f"u{i}" for i in range(len(table))]
    votes = table.melt("cell_id", var_name="judge", value_name="vote").astype(str)
    cells = pd.DataFrame({"cell_id": table["cell_id"], "participant_id": table["cell_id"]})
    return build_panel(votes, cells, book([f"c{k}" for k in range(n_classes)], sorted(votes["vote"].unique())))


def flat(**how):
    """Model whose priors are flat, to three decimals of a log likelihood at loadings below ten."""
    return LatentClass(
        emission=DiagonalDirichlet(1.0, 1.0), sigma=dist.HalfNormal(1000.0), prevalence_formula="~ 1", **how
    )


def case(name, key, quick=False):
    marks = [] if quick else [pytest.mark.slow]
    return pytest.param(name, key, marks=marks, id=f"{name}-{key}")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        case("dentistry", "lc1"), case("dentistry", "lc2"), case("dentistry", "lc3", quick=True),
        case("dentistry", "re1_const_probit"), case("dentistry", "re1_vary_probit"),
        case("dentistry", "re2_const_probit", quick=True), case("dentistry", "re2_const_logit"),
        case("dentistry", "re2_vary_probit"), case("dentistry", "re2_vary_logit", quick=True),
        case("dentistry", "re2_byclass_probit", quick=True), case("dentistry", "re2_byclass_logit"),
        case("dentistry", "re3_const_probit"),
        case("myocardial", "lc1"), case("myocardial", "lc2", quick=True),
        case("carcinoma", "lc1"), case("carcinoma", "lc2"), case("carcinoma", "lc3"),
        case("carcinoma", "re1_const_probit"), case("carcinoma", "re2_const_probit"),
        case("gss82", "gss82_2", quick=True), case("gss82", "gss82_3"),
    ],
)  # fmt: skip
def test_flat_priors_make_it_maximum_likelihood(shared_data, name, key):
    """Log likelihood within .01 and at least as high; class shares within .002.

    Sources: Beath (2017), JSS 81(13), table of the dentistry example; poLCA's manual; both recomputed with R and by an
    independent program (unpenalised, many starts), which is what the oracle holds.
    """
    oracle = json.loads((shared_data / "oracles" / f"lca_{name}.oracle.json").read_text())["oracle"][key]
    share = np.sort(oracle.get("classp", oracle.get("P")))
    how = {"dependence": "none"}
    if key.startswith("re"):
        _, loading, link = key.split("_")
        # Steep effects on few cells need more nodes.
        nodes = GaussHermite(151 if name == "carcinoma" else 61)
        how = {"dependence": "severity", "link": link, "loading": LOADINGS[loading], "quadrature": nodes}
    panel = pattern_panel(shared_data, name, len(share))
    fit = MAP(num_starts=24, progress=False).fit(jax.random.key(0), flat(**how), panel)
    modes = fit["modes"].dataset
    expected = float(oracle.get("logLik", oracle.get("llik")))
    assert float(modes["log_likelihood"][0]) > expected - 0.01
    assert float(modes["log_likelihood"][0]) < expected + 0.01
    assert bool(modes["converged"][0])
    np.testing.assert_allclose(np.sort(fit["posterior"]["prevalence"].to_numpy()[0, 0]), share, atol=0.002)
    if "loading" in oracle and name == "dentistry":
        found = np.atleast_1d(fit["posterior"]["sigma"].to_numpy()[0, 0])
        order = (
            np.argsort(-fit["posterior"]["prevalence"].to_numpy()[0, 0]) if how["loading"] == "state" else slice(None)
        )
        np.testing.assert_allclose(found[order], oracle["loading"], rtol=0.005)


def anaesthesia(shared_data):
    table = pd.read_csv(shared_data / "oracles" / "ds_anesthesia_long.csv", dtype=str)
    votes = table.rename(columns={"item": "cell_id", "rater": "judge", "rating": "vote"})
    votes["replicate"] = votes.groupby(["cell_id", "judge"]).cumcount().astype(str)
    cells = pd.DataFrame({"cell_id": votes["cell_id"].unique()})
    cells["participant_id"] = cells["cell_id"]
    states = ["1", "2", "3", "4"]
    return build_panel(votes, cells, book(states, states)), cells["cell_id"].astype(int).to_numpy() - 1


def test_dawid_and_skenes_own_table(shared_data):
    """At the published solution likelihood and states are the published ones; the search finds higher modes.

    The unpenalised likelihood has many: -190.731 is what EM finds from vote shares, -189.405 the highest known.
    """
    panel, item = anaesthesia(shared_data)
    oracle = json.loads((shared_data / "oracles" / "ds_anesthesia.oracle.json").read_text())["oracle"]
    model = flat(dependence="none")
    published = oracle["dawid_skene_em_mv_start"]
    prepared = model.prepare(panel)
    params = {"prevalence": np.array(published["pi"]), "emission": np.array(published["E"])}
    assert float(model.total_log_likelihood(params, prepared.data)) == pytest.approx(published["ll"], abs=1e-4)
    states = np.asarray(model.state_probabilities(params, prepared.data))[prepared.pattern]
    np.testing.assert_allclose(states, np.array(published["post"])[item], atol=1e-6)
    first = MAP(num_starts=1, progress=False).fit(jax.random.key(0), model, panel)["modes"].dataset
    assert float(first["log_likelihood"][0]) > published["ll"] - 0.01
    best = MAP(num_starts=40, progress=False).fit(jax.random.key(1), model, panel)["modes"].dataset
    assert float(best["log_likelihood"][0]) > oracle["global_ml"]["ll"] - 0.01
    assert best.attrs["gap"] > 0
    assert best.attrs["share_best"] < 1


def test_bluebirds(shared_data):
    """Thirty-nine workers on 108 pictures: error of the maximum likelihood fit as computed by plain EM."""
    folder = shared_data / "oracles"
    oracle = json.loads((folder / "ds_bluebird.oracle.json").read_text())["oracle"]
    votes = pd.read_csv(folder / "ds_bluebird.csv", dtype=str).rename(
        columns={"item": "cell_id", "rater": "judge", "label": "vote"}
    )
    cells = pd.DataFrame({"cell_id": votes["cell_id"].unique()})
    cells["participant_id"] = cells["cell_id"]
    panel = build_panel(votes, cells, book(["1", "2"], ["1", "2"]))
    model = flat(dependence="none")
    fit = MAP(num_starts=1, progress=False).fit(jax.random.key(0), model, panel)
    truth = (
        pd.read_csv(folder / "ds_bluebird_truth.csv", dtype=str).set_index("item")["truth"].reindex(cells["cell_id"])
    )
    said = np.array(["1", "2"])[posterior_reference(fit, model, panel).map_state]
    assert (said != truth.to_numpy()).mean() == pytest.approx(oracle["dawid_skene_em_error"], abs=0.005)
    assert float(fit["modes"]["log_likelihood"][0]) == pytest.approx(oracle["dawid_skene_em_loglik"], abs=0.5)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_known_states_have_a_closed_form(alpha):
    """The mode of a Dirichlet posterior: (n + α − 1) / (N + K(α − 1))."""
    rng = np.random.default_rng(4)
    states = ["a", "b", "c"]
    truth = rng.choice(3, size=60)
    votes = np.where(rng.random((60, 2)) < 0.7, truth[:, None], rng.integers(0, 3, (60, 2)))
    cells = pd.DataFrame(
        {"cell_id": [f"u{i}" for i in range(60)], "participant_id": "p", "known_state": [states[k] for k in truth]}
    )
    rows = [(f"u{i}", f"j{j}", states[votes[i, j]]) for i in range(60) for j in range(2)]
    panel = build_panel(pd.DataFrame(rows, columns=["cell_id", "judge", "vote"]), cells, book(states, states))
    model = LatentClass(
        dependence="none",
        prevalence_formula="~ 1",
        prevalence=SymmetricDirichlet(alpha),
        emission=DiagonalDirichlet(alpha, alpha),
    )
    fit = MAP(num_starts=3, progress=False).fit(jax.random.key(0), model, panel)

    def mode(counts):
        return (counts + alpha - 1) / (counts + alpha - 1).sum(-1, keepdims=True)

    posterior = fit["posterior"].dataset.isel(chain=0, draw=0)
    np.testing.assert_allclose(posterior["prevalence"], mode(np.bincount(truth, minlength=3)), atol=1e-5)
    for j in range(2):
        counts = np.zeros((3, 3))
        np.add.at(counts, (truth, votes[:, j]), 1)
        np.testing.assert_allclose(posterior["emission"][j], mode(counts), atol=1e-5)
    assert fit["modes"].attrs["share_best"] == 1
    assert np.isnan(fit["modes"].attrs["gap"])
    assert posterior["prevalence"].dims == ("state",)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"num_starts": 0}, r"inference\.num_starts: 0 .*whole number from 1"),
        ({"max_iterations": 2.5}, r"inference\.max_iterations: 2\.5"),
        ({"spread": -1.0}, r"inference\.spread: -1\.0 .*positive"),
        ({"tolerance": 0.0}, r"inference\.tolerance"),
        ({"floats": "float16"}, r"inference\.floats: 'float16'"),
    ],
)
def test_settings_are_checked(setting, message):
    with pytest.raises(InputError, match=message):
        MAP(**setting)
