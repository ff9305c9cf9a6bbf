import json
from dataclasses import replace

import arviz as az
import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.inference import chains, whitening
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.models.emission.dirichlet import DiagonalDirichlet
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.priors import SymmetricDirichlet

QUICK = NUTS(num_warmup=300, num_samples=300, progress=False)


def within_monte_carlo_error(found, expected, sd, ess, width=4.0):
    return np.all(np.abs(found - expected) < width * sd / np.sqrt(ess))


def test_known_states_give_the_conjugate_posterior():
    """With every state known and no dependence, prevalence and emissions are Dirichlet in closed form."""
    rng = np.random.default_rng(4)
    states = ["a", "b", "c"]
    book = Codebook.from_mapping(
        {"name": "n", "states": states, "categories": states, "labels": ["a", "b"],
         "supports": {"a": "a", "b": "b", "c": None}, "sufficient": ["a", "b"]}
    )  # fmt: skip
    truth = rng.choice(3, size=40, p=[0.5, 0.3, 0.2])
    votes = np.where(rng.random((40, 2)) < 0.7, truth[:, None], rng.integers(0, 3, (40, 2)))
    cells = pd.DataFrame(
        {"cell_id": [f"u{i}" for i in range(40)], "participant_id": "p", "known_state": [states[k] for k in truth]}
    )
    rows = pd.DataFrame(
        [{"cell_id": f"u{i}", "judge": f"j{j}", "vote": states[votes[i, j]]} for i in range(40) for j in range(2)]
    )
    panel = build_panel(rows, cells, book)
    model = LatentClass(dependence="none", prevalence_formula="~ 1")
    posterior = QUICK.fit(jax.random.key(3), model, panel)["posterior"].dataset
    ess = posterior.azstats.ess()
    alpha = 1.0 + np.bincount(truth, minlength=3)
    exact = dist.Dirichlet(alpha)
    draws = posterior["prevalence"]
    assert within_monte_carlo_error(draws.mean(("chain", "draw")), exact.mean, np.sqrt(exact.variance), ess.prevalence)
    for j in range(2):
        counts = np.zeros((3, 3))
        np.add.at(counts, (truth, votes[:, j]), 1)
        exact = dist.Dirichlet(1 + 7 * np.eye(3) + counts)
        draws = posterior["emission"][:, :, j]
        sd = np.sqrt(exact.variance)
        assert within_monte_carlo_error(draws.mean(("chain", "draw")), exact.mean, sd, ess.emission[j])
        # Standard error of a standard deviation is sd / √(2 ess) for a normal; Dirichlets are close.
        assert within_monte_carlo_error(draws.std(("chain", "draw")), sd, sd, ess.emission[j] / 2, 5.0)


def test_without_dependence_it_is_bayesian_dawid_skene(shared_data):
    """Posterior means of rater's Stan program on the anaesthesia table, with rater's default priors.

    The prevalences are those that the oracle file's authors obtained with four chains of 5,000 draws.
    """
    table = pd.read_csv(shared_data / "oracles" / "ds_anesthesia_long.csv", dtype=str)
    states = ["1", "2", "3", "4"]
    book = Codebook.from_mapping({"name": "fitness", "states": states, "categories": states, "labels": [],
                                  "supports": dict.fromkeys(states), "sufficient": []})  # fmt: skip
    votes = table.rename(columns={"item": "cell_id", "rater": "judge", "rating": "vote"})
    votes["replicate"] = votes.groupby(["cell_id", "judge"]).cumcount().astype(str)
    cells = pd.DataFrame({"cell_id": votes["cell_id"].unique()})
    cells["participant_id"] = cells["cell_id"]
    panel = build_panel(votes, cells, book)
    model = LatentClass(
        dependence="none",
        prevalence_formula="~ 1",
        prevalence=SymmetricDirichlet(3.0),
        emission=DiagonalDirichlet(diagonal=4.8, off_diagonal=3.2 / 3),
    )
    posterior = replace(QUICK, num_samples=1000).fit(jax.random.key(7), model, panel)["posterior"].dataset
    draws = posterior["prevalence"]
    sd, ess = draws.std(("chain", "draw")), posterior.azstats.ess()["prevalence"]
    # The oracle is printed to four digits and has an error of its own, of 20,000 draws.
    ess = 1 / (1 / ess + 1 / 20_000)
    assert within_monte_carlo_error(draws.mean(("chain", "draw")), [0.3753, 0.4067, 0.1432, 0.0748], sd, ess)


def test_the_fit_has_arviz_groups_with_named_dims(fit, panel):
    assert set(fit.children) == {
        "posterior", "sample_stats", "log_likelihood", "log_prior", "observed_data", "constant_data",
    }  # fmt: skip
    for group in fit.children.values():
        assert not [dim for dim in group.dims if "_dim_" in str(dim)]
    posterior = fit["posterior"].dataset
    assert posterior["emission"].dims == ("chain", "draw", "judge", "state", "category")
    assert list(posterior["judge"].values) == list(panel.coords["judge"])
    assert list(posterior["effect"].values) == ["source[T.source_b]"] or len(posterior["effect"]) == 1
    np.testing.assert_allclose(posterior["emission"].sum("category"), 1)
    np.testing.assert_allclose(posterior["slope"].sum("state"), 0, atol=1e-12)
    assert fit.attrs["panel_hash"] == panel.hash
    assert json.loads(fit.attrs["model"])["sigma"] == {"type": "HalfNormal", "scale": 1.0}
    assert len(fit["observed_data"]["vote"]) == len(panel.vote_category)


def test_arviz_labels_every_parameter_rightly(fit):
    summary = az.summary(fit, ci_prob=0.95, kind="stats", round_to="none")
    means = fit["posterior"].dataset.mean(("chain", "draw"))
    for judge in means["judge"].values:
        for state in means["state"].values:
            for category in means["category"].values:
                row = summary.loc[f"emission[{judge}, {state}, {category}]", "mean"]
                entry = means["emission"].sel(judge=judge, state=state, category=category)
                assert float(row) == pytest.approx(float(entry))
    for state in means["state"].values:
        effect = means["effect"].values[0]
        assert float(summary.loc[f"slope[{state}, {effect}]", "mean"]) == pytest.approx(
            float(means["slope"].sel(state=state, effect=effect))
        )


def test_loo_and_power_scaling_work_on_it(fit, panel):
    loo = az.loo(fit)
    assert loo.n_data_points == int((panel.n_votes > 0).sum())
    assert not loo.warning
    sensitivity = az.psense_summary(fit)
    assert {"prior", "likelihood"} <= set(sensitivity.columns)


def test_log_likelihood_is_that_of_the_posterior_draws(fit, model, panel):
    prepared = model.prepare(panel)
    one = {name: fit["posterior"][name].values[2, 17] for name in prepared.dims}
    expected = np.asarray(model.log_likelihood(one, prepared.data))[prepared.pattern][panel.n_votes > 0]
    np.testing.assert_allclose(fit["log_likelihood"]["votes"].values[2, 17], expected)


def test_it_survives_netcdf(fit, tmp_path):
    fit.to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "fit.nc", engine="h5netcdf") as read:
        xr.testing.assert_equal(read["posterior"].dataset.load(), fit["posterior"].dataset)
        assert read.attrs == fit.attrs


def test_one_key_gives_one_result(model, panel):
    short = NUTS(num_warmup=40, num_samples=10, num_chains=2, max_tree_depth=4, progress=False)
    key = jax.random.key(5)
    first = short.fit(key, model, panel)["posterior"].dataset
    xr.testing.assert_equal(first, short.fit(key, model, panel)["posterior"].dataset)
    xr.testing.assert_equal(
        first, replace(short, chain_method="sequential").fit(key, model, panel)["posterior"].dataset
    )
    assert not first.equals(short.fit(jax.random.key(6), model, panel)["posterior"].dataset)


def test_other_ways_to_run_chains_have_the_same_posterior(fit, model, panel):
    """One program for all chains, and coordinates that are not whitened, round otherwise: draws differ."""
    expected = fit["posterior"].dataset
    sd = expected.std(("chain", "draw"))
    for change in ({"chain_method": "vectorized"}, {"metric": "diagonal"}):
        found = replace(QUICK, **change).fit(jax.random.key(9), model, panel)["posterior"].dataset
        assert float(found.azstats.rhat()["sigma"]) < 1.05
        ess = 1 / (1 / expected.azstats.ess() + 1 / found.azstats.ess())
        for name in ("emission", "prevalence", "slope", "sigma"):
            means = [x[name].mean(("chain", "draw")) for x in (expected, found)]
            assert within_monte_carlo_error(means[0], means[1], sd[name], ess[name], 4.5)


def test_many_coordinates_are_not_whitened(model, panel, monkeypatch):
    short = NUTS(num_warmup=20, num_samples=5, num_chains=2, max_tree_depth=4, progress=False)
    plain = replace(short, metric="diagonal").fit(jax.random.key(5), model, panel)["posterior"].dataset
    monkeypatch.setattr(whitening, "MOST_WHITENED", 10)
    xr.testing.assert_equal(plain, short.fit(jax.random.key(5), model, panel)["posterior"].dataset)


def test_new_prior_values_do_not_compile_again(panel):
    short = NUTS(num_warmup=5, num_samples=5, num_chains=2, max_tree_depth=3, progress=False)
    key = jax.random.key(8)
    sizes = []
    for scale, diagonal in ((1.0, 8.0), (0.5, 8.0), (0.5, 4.0)):
        model = LatentClass(
            prevalence_formula="~ source", sigma=dist.HalfNormal(scale), emission=DiagonalDirichlet(diagonal)
        )
        short.fit(key, model, panel)
        sizes.append(chains._advance._cache_size())
    assert sizes[0] == sizes[1] == sizes[2]


def test_float32_agrees_with_float64(fit, model, panel):
    single = replace(QUICK, floats="float32").fit(jax.random.key(2), model, panel)["posterior"].dataset
    double = fit["posterior"].dataset
    assert single["emission"].dtype == np.float32
    ess = 1 / (1 / single.azstats.ess() + 1 / double.azstats.ess())
    sd = double.std(("chain", "draw"))
    for name in ("emission", "prevalence", "slope", "sigma"):
        means = [x[name].mean(("chain", "draw")) for x in (single, double)]
        assert within_monte_carlo_error(means[0], means[1], sd[name], ess[name], 4.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_warmup": 0}, r"inference\.num_warmup: 0 is not usable; allowed: a whole number from 1 on"),
        ({"num_samples": 2.5}, r"inference\.num_samples: 2\.5"),
        ({"num_chains": True}, r"inference\.num_chains: True"),
        ({"target_accept_prob": 1.0}, "between 0 and 1"),
        ({"chain_method": "vectorised"}, r"Did you mean 'vectorized'\?"),
        ({"metric": "laplas"}, r"inference\.metric: 'laplas' is unknown\. Did you mean 'laplace'\?"),
        ({"floats": "float16"}, "Allowed: float64, float32"),
    ],
)
def test_settings_out_of_range_are_named(change, message):
    with pytest.raises(InputError, match=message):
        NUTS(**change)
