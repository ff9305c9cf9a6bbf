"""Likelihoods through scores and counts against the general ones, which go vote by vote and pattern by pattern.

The general ones stand against sums in plain loops in test_structures.py.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.quadrature import PaperGrid

STRUCTURES = {
    "clarity": {},
    "severity": {"dependence": "severity"},
    "by_state": {"loading": "state"},
    "none": {"dependence": "none"},
    "participants": {"participant_effect": dist.HalfNormal(1.0)},
    "grid": {"quadrature": PaperGrid()},
}


def both(model, panel, params, dtype=np.float64):
    """Log likelihood and gradient by emission, by counts and scores and without."""
    data = model.prepare(panel).data
    assert data.tilts is not None
    with jax.enable_x64(dtype == np.float64):
        params = {name: jnp.asarray(value, dtype) for name, value in params.items()}

        def found(data):
            data = jax.tree.map(lambda x: jnp.asarray(x, dtype if x.dtype.kind == "f" else None), data)
            return jax.value_and_grad(lambda p: model.total_log_likelihood(p, data))(params)

        general = found(replace(data, tilts=None, tally=None, space="log"))
        return found(data), general


def agree(found, general, rtol):
    np.testing.assert_allclose(found[0], general[0], rtol=rtol)
    for name, value in general[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=name)


def effects_of(model, params, panel):
    """Parameters with loadings as the structure wants them."""
    n_states = len(panel.coords["state"])
    more = {"participant_sigma": np.asarray(0.7)} if model.participant_effect is not None else {}
    if model.dependence == "none":
        return {name: value for name, value in params.items() if name != "sigma"} | more
    return params | more | ({"sigma": np.linspace(0.3, 1.5, n_states)} if model.loading == "state" else {})


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("n_judges", [3, 9])
def test_counts_and_scores_change_no_likelihood(make_panel, make_params, kind, n_judges):
    """Three judges are multiplied out, nine are summed as logarithms; replicates and known cells included."""
    model = LatentClass(prevalence_formula="~ source", **STRUCTURES[kind])
    panel = make_panel(3, n_cells=40, n_judges=n_judges, replicates=True, known=True)
    params = effects_of(model, make_params(5, panel, 1), panel)
    agree(*both(model, panel, params), rtol=1e-10)


@pytest.mark.parametrize("sigma", [8.0, 60.0, 1000.0])
def test_huge_effects_neither_overflow_nor_vanish(make_panel, make_params, sigma):
    """Nodes at thousands of logits: every emission is at its limit there, and stays finite with its gradient."""
    model = LatentClass(prevalence_formula="~ source")
    panel = make_panel(4, n_cells=40)
    params = {**make_params(6, panel, 1), "sigma": np.asarray(sigma)}
    found, general = both(model, panel, params)
    assert all(np.isfinite(value).all() for value in found[1].values())
    np.testing.assert_allclose(found[0], general[0], rtol=1e-9)


def test_votes_that_a_state_excludes_cost_no_gradient(make_panel, make_params):
    """Emissions of zero: the state is ruled out, and nothing becomes NaN."""
    model = LatentClass(prevalence_formula="~ source")
    panel = make_panel(4, n_cells=40)
    params = make_params(6, panel, 1)
    params["emission"][0, 1] = [0.0, 1.0, 0.0]
    found, general = both(model, panel, params)
    assert all(np.isfinite(value).all() for value in found[1].values())
    np.testing.assert_allclose(found[0], general[0], rtol=1e-9)


def test_single_precision_takes_logarithms(make_panel, make_params):
    model = LatentClass(prevalence_formula="~ source")
    panel = make_panel(3, n_cells=40, n_judges=4)
    params = make_params(5, panel, 1)
    single, _ = both(model, panel, params, np.float32)
    double, _ = both(model, panel, params)
    # Forty cells of four votes each: about 160 logarithms, each rounded to 6e-8 of about two.
    agree(single, double, rtol=2e-4)


def test_panels_whose_covariates_differ_by_cell_keep_to_patterns(make_panel):
    """A covariate with as many values as cells would make the table of counts mostly empty."""
    panel = make_panel(3, n_cells=40)
    cells = panel.cells.assign(age=np.linspace(20, 60, len(panel.cells)))
    data = LatentClass(prevalence_formula="~ age").prepare(replace(panel, cells=cells)).data
    assert data.tally is None
    assert LatentClass(prevalence_formula="~ source").prepare(panel).data.tally is not None


@pytest.mark.parametrize(
    "how", [{"loading": "judge"}, {"family_effect": dist.HalfNormal(1.0)}], ids=["by_judge", "families"]
)
def test_effects_that_are_no_score_go_vote_by_vote(make_panel, how):
    assert LatentClass(prevalence_formula="~ source", **how).prepare(make_panel(3)).data.tilts is None
