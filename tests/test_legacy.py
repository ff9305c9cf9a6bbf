"""The source paper's legacy panel: three states, five protocols, nine dimensions on every transcript."""

import jax
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from evidial_bayes.config import build, conf_dir
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import build_panel
from evidial_bayes.data.simulate import simulate_panel
from evidial_bayes.data.simulation_settings import SimulationSettings
from evidial_bayes.inference.map import MAP
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.models.quadrature import PaperGrid

EXPERIMENTS = {"legacy_homogeneous": 0, "legacy_source_group": 1 + 2, "legacy_source_dimension": 1 + 8}
STATES = ("observable_positive", "observable_negative", "not_assessable")
SHARES = {"a": dict(zip(STATES, (0.5, 0.2, 0.3), strict=True)), "b": dict(zip(STATES, (0.3, 0.2, 0.5), strict=True))}


def composed(experiment):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("fit", [f"experiment={experiment}"])


def legacy_panel(config, n_participants, seed):
    codebook = Codebook.from_mapping(OmegaConf.to_container(config.codebook, resolve=True))
    settings = SimulationSettings(
        n_participants=n_participants, n_judges=5, sources={"a": 1, "b": 1}, shares=SHARES, sigma=0.8, coverage=1.0
    )
    simulated = simulate_panel(seed, settings, codebook)
    return build_panel(simulated.votes, simulated.cells, codebook), simulated


@pytest.mark.parametrize(("experiment", "n_effects"), EXPERIMENTS.items())
def test_each_experiment_has_its_covariates(experiment, n_effects):
    config = composed(experiment)
    model = build(config, "model")
    assert (model.dependence, model.quadrature) == ("clarity", PaperGrid())
    panel, _ = legacy_panel(config, 20, 1)
    assert len(panel.cells) == 180
    assert panel.codebook.states == STATES
    assert model.prepare(panel).data.patterns.design.shape[1] == n_effects


def test_the_class_shares_are_recovered():
    """Shares of 900 cells: four binomial standard errors, and half as much again for votes that are not the truth."""
    config = composed("legacy_source_group")
    panel, simulated = legacy_panel(config, 100, 2)
    fit = MAP(num_starts=1, progress=False).fit(jax.random.key(0), build(config, "model"), panel)
    truth = simulated.truth["state"].value_counts(normalize=True).reindex(STATES).to_numpy()
    found = fit["posterior"]["prevalence"].to_numpy()[0, 0]
    assert np.abs(found - truth).max() < 1.5 * 4 * np.sqrt(0.25 / len(panel.cells))


@pytest.mark.slow
def test_the_papers_realistic_scenario_is_recovered_within_its_tolerances():
    """5,283 cells: prevalence within .05, the population's emission .07, the effect's standard deviation .30."""
    config = composed("legacy_source_group")
    panel, simulated = legacy_panel(config, 587, 3)
    assert len(panel.cells) == 5283
    model = build(config, "model")
    posterior = NUTS(num_warmup=300, num_samples=300, progress=False).fit(jax.random.key(0), model, panel)["posterior"]
    mean = posterior.dataset.mean(("chain", "draw"))
    state = simulated.truth.set_index("cell_id")["state"].reindex(panel.coords["cell"])
    share = state.value_counts(normalize=True).reindex(STATES).to_numpy()
    assert np.abs(mean["prevalence"].to_numpy() - share).max() < 0.05
    emission = np.asarray(simulated.parameters["emission"])
    assert np.abs(mean["emission"].to_numpy().mean(0) - emission.mean(0)).max() < 0.07
    assert abs(float(mean["sigma"]) - 0.8) < 0.30
