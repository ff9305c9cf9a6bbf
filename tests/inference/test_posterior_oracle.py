"""The posterior of Qu, Tan & Kutner's model on the dentistry table against that of a Stan program."""

import json

import arviz_stats  # noqa: F401  (registers the accessor `azstats`)
import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import build_panel
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.models.emission.predictor import NormalPredictor
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.quadrature import GaussHermite


@pytest.fixture(scope="module")
def dentistry(shared_data):
    """Five dentists on 3,869 X-rays (Espeland & Handelman 1989)."""
    table = pd.read_csv(shared_data / "oracles" / "lca_dentistry.csv")
    rows = table.loc[table.index.repeat(table["freq"])].drop(columns="freq").reset_index(drop=True)
    rows["cell_id"] = [f"u{i}" for i in range(len(rows))]
    states = ["0", "1"]
    book = Codebook.from_mapping({"name": "caries", "states": states, "categories": states, "labels": [],
                                  "supports": dict.fromkeys(states), "sufficient": []})  # fmt: skip
    votes = rows.melt("cell_id", var_name="judge", value_name="vote").astype(str)
    return build_panel(votes, pd.DataFrame({"cell_id": rows["cell_id"], "participant_id": rows["cell_id"]}), book)


@pytest.mark.parametrize(
    ("link", "draws"),
    [("probit", 400), pytest.param("probit", 2000, marks=pytest.mark.slow),
     pytest.param("logit", 2000, marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_posterior_is_that_of_stan(dentistry, shared_data, link, draws):
    """Means within .15 posterior sd of Stan's, plus three Monte Carlo errors of both."""
    oracle = json.loads((shared_data / "oracles" / "lca_dentistry.oracle.json").read_text())["oracle"]["bayes_stan"]
    stan = oracle[f"dentistry_{link}"]
    model = LatentClass(
        dependence="severity",
        link=link,
        emission=NormalPredictor(2.0),
        sigma=dist.HalfNormal(1.5),
        prevalence_formula="~ 1",
        quadrature=GaussHermite(31),
    )
    fit = NUTS(num_warmup=400, num_samples=draws, progress=False).fit(jax.random.key(0), model, dentistry)
    posterior = fit["posterior"].dataset
    ess = posterior.azstats.ess()
    names = [("prevalence", (0,)), ("sigma", ())] + [("predictor", (j, k)) for k in range(2) for j in range(5)]
    assert stan["par"][:12] == ["pi1", "lam", *(f"a[{k},{j}]" for k in (1, 2) for j in range(1, 6))]
    for (site, at), mean, sd, neff in zip(names, stan["mean"], stan["sd"], stan["neff"], strict=False):
        ours = posterior[site].to_numpy()[(..., *at)]
        error = np.sqrt(sd**2 / neff + ours.var() / float(ess[site].to_numpy()[at]))
        assert abs(ours.mean() - mean) < 0.15 * sd + 3 * error, (site, at)
        # The standard deviation of a standard deviation is about sd / √(2 ess).
        assert abs(ours.std() - sd) < 0.15 * sd + 4 * error / np.sqrt(2), (site, at)
