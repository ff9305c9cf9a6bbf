from dataclasses import replace

import jax
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import potential_energy
from scipy import integrate, stats
from scipy.special import logsumexp

from evidial_bayes.data.errors import InputError
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.latent_class_data import LatentClassData
from evidial_bayes.models.quadrature import GaussHermite, PaperGrid

FORMULA = "~ source + dimension"


def nodes_and_weights(rule, sigma):
    """Rules of quadrature written out again, without the package."""
    if isinstance(rule, PaperGrid):
        b = np.array([-6 + 0.15 * g for g in range(81)])
        w = np.exp(-(b**2) / (2 * sigma**2))
        return b, w / w.sum()
    x, w = np.polynomial.hermite.hermgauss(rule.nodes)
    return np.sqrt(2) * sigma * x, w / np.sqrt(np.pi)


def brute_force(panel, design, params, rule, dependence):
    """Enumerate every state and node of every cell in loops: joint probabilities [cell, state]."""
    n_states = len(panel.codebook.states)
    joint = np.zeros((len(panel.cells), n_states))
    b, w = nodes_and_weights(rule, float(params["sigma"])) if dependence == "clarity" else ([0.0], [1.0])
    for u in range(len(panel.cells)):
        votes = [
            (panel.vote_judge[v], panel.vote_category[v])
            for v in range(len(panel.vote_cell))
            if panel.vote_cell[v] == u
        ]
        score = [
            np.log(params["prevalence"][k]) + sum(design[u, e] * params["slope"][k, e] for e in range(design.shape[1]))
            for k in range(n_states)
        ]
        prevalence = [np.exp(s) / sum(np.exp(t) for t in score) for s in score]
        for k in range(n_states):
            if panel.known[u] not in (-1, k):
                continue
            total = 0.0
            for g in range(len(b)):
                product = 1.0
                for j, y in votes:
                    e = params["emission"][j, k]
                    tilted = [e[c] * np.exp(b[g] * (c == k)) for c in range(len(e))]
                    product *= tilted[y] / sum(tilted)
                total += w[g] * product
            joint[u, k] = total * (1.0 if panel.constructed[u] else prevalence[k])
    return joint


def with_space(data: LatentClassData, space: str) -> LatentClassData:
    return replace(data, space=space)


def dense_design(panel):
    """Treatment coding of the toy panel by hand, centred over sampled cells."""
    columns = [panel.cells["source"] == "b", panel.cells["dimension"] == "d1", panel.cells["dimension"] == "d2"]
    design = np.column_stack([c.to_numpy(dtype=float) for c in columns])
    return design - design[~panel.constructed].mean(0)


@pytest.mark.parametrize("dependence", ["none", "clarity"])
@pytest.mark.parametrize("rule", [GaussHermite(7), GaussHermite(15), PaperGrid()], ids=["gh7", "gh15", "grid"])
@pytest.mark.parametrize("space", ["probability", "log"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_likelihood_and_states_equal_enumeration(make_panel, make_params, dependence, rule, space, known, seed):
    panel = make_panel(seed, known=known)
    model = LatentClass(dependence=dependence, quadrature=rule, prevalence_formula=FORMULA)
    prepared = model.prepare(panel)
    design = dense_design(panel)
    np.testing.assert_allclose(
        prepared.data.patterns.design[prepared.data.patterns.design_row][prepared.pattern], design
    )
    params = make_params(seed, panel, design.shape[1])
    data = with_space(prepared.data, space)
    joint = brute_force(panel, design, params, rule, dependence)
    log_likelihood = np.asarray(model.log_likelihood(params, data))[prepared.pattern]
    states = np.asarray(model.state_probabilities(params, data))[prepared.pattern]
    np.testing.assert_allclose(log_likelihood, np.log(joint.sum(1)), rtol=0, atol=1e-10)
    np.testing.assert_allclose(states, joint / joint.sum(1, keepdims=True), rtol=0, atol=1e-10)


def test_replicates_of_a_judge_share_its_emissions(make_panel, make_params):
    panel = make_panel(3, replicates=True)
    model = LatentClass(prevalence_formula=FORMULA)
    prepared = model.prepare(panel)
    assert prepared.data.space == "log"
    params = make_params(3, panel, 3)
    joint = brute_force(panel, dense_design(panel), params, GaussHermite(15), "clarity")
    found = np.asarray(model.log_likelihood(params, prepared.data))[prepared.pattern]
    np.testing.assert_allclose(found, np.log(joint.sum(1)), rtol=0, atol=1e-10)


def test_the_factor_is_the_sum_over_cells_and_not_over_patterns(make_panel, make_params):
    panel = make_panel(4, n_cells=60, n_judges=2)
    model = LatentClass(prevalence_formula="~ source")
    prepared = model.prepare(panel)
    assert len(prepared.data.patterns.count) < len(panel.cells)
    assert prepared.data.patterns.count.sum() == len(panel.cells)
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(prepared.data)
    params = {name: site["value"] for name, site in trace.items() if name in prepared.dims}
    cells = np.asarray(model.log_likelihood(params, prepared.data))[prepared.pattern]
    np.testing.assert_allclose(trace["votes"]["fn"].log_factor, cells.sum(), rtol=1e-12)


def test_an_unvoted_cell_keeps_its_prevalence(make_panel, make_params):
    panel = make_panel(5)
    model = LatentClass(prevalence_formula=FORMULA)
    prepared = model.prepare(panel)
    params = make_params(5, panel, 3)
    states = np.asarray(model.state_probabilities(params, prepared.data))[prepared.pattern][-1]
    logits = np.log(params["prevalence"]) + dense_design(panel)[-1] @ params["slope"].T
    assert panel.n_votes[-1] == 0
    np.testing.assert_allclose(states, np.exp(logits - logsumexp(logits)), atol=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])
def test_grid_and_gauss_hermite_agree_at_moderate_sigma(make_panel, make_params, sigma):
    panel = make_panel(6, n_cells=30)
    params = make_params(6, panel, 3) | {"sigma": np.asarray(sigma)}
    totals = []
    for rule in (GaussHermite(15), PaperGrid()):
        model = LatentClass(quadrature=rule, prevalence_formula=FORMULA)
        data = model.prepare(panel).data
        totals.append(float(data.patterns.count @ np.asarray(model.log_likelihood(params, data))))
    assert abs(totals[0] - totals[1]) < 1e-4


@pytest.mark.parametrize("rule", [GaussHermite(15), PaperGrid()], ids=["gh15", "grid"])
def test_weights_stand_for_the_integral(make_panel, make_params, rule):
    """The legacy sum over the grid without its width would be off by n · log 0.15, and by adaptive quadrature."""
    panel = make_panel(7)
    params = make_params(7, panel, 3)
    model = LatentClass(quadrature=rule, prevalence_formula=FORMULA)
    prepared = model.prepare(panel)
    total = np.asarray(model.log_likelihood(params, prepared.data))[prepared.pattern].sum()
    design, sigma = dense_design(panel), float(params["sigma"])

    def integrand(b, u):
        point = {**params, "emission": _tilt(params["emission"], b)}
        return brute_force_cell(panel, design, point, u) * stats.norm.pdf(b, scale=sigma)

    exact = sum(
        np.log(integrate.quad(integrand, -12 * sigma, 12 * sigma, args=(u,), epsabs=1e-12)[0])
        for u in range(len(panel.cells))
    )
    assert abs(total - exact) < 1e-4
    grid = -6 + 0.15 * np.arange(81)
    legacy = sum(np.log(sum(integrand(b, u) for b in grid)) for u in range(len(panel.cells)))
    assert legacy - total == pytest.approx(-len(panel.cells) * np.log(0.15), abs=1e-3)


def _tilt(emission, b):
    tilted = emission * np.exp(b * np.eye(emission.shape[-1]))
    return tilted / tilted.sum(-1, keepdims=True)


def brute_force_cell(panel, design, params, u):
    """Probability of the votes of one cell without any cell effect."""
    logits = np.log(params["prevalence"]) + design[u] @ params["slope"].T
    prior = np.exp(logits - logsumexp(logits))
    votes = np.flatnonzero(panel.vote_cell == u)
    emission = params["emission"][panel.vote_judge[votes], :, panel.vote_category[votes]]
    return float(prior @ np.prod(emission, axis=0)) if len(votes) else 1.0


def test_states_are_normalised_jointly_and_not_class_by_class(make_panel, make_params):
    """Rescaling each class by its own largest node, as the legacy code did, loses the class-specific factor."""
    panel = make_panel(8)
    model = LatentClass(quadrature=PaperGrid(), prevalence_formula=FORMULA)
    prepared = model.prepare(panel)
    params = make_params(8, panel, 3)
    states = np.asarray(model.state_probabilities(params, prepared.data))[prepared.pattern]
    design = dense_design(panel)
    b, w = nodes_and_weights(PaperGrid(), float(params["sigma"]))
    legacy = np.zeros_like(states)
    for u in range(len(panel.cells)):
        at_nodes = np.stack([brute_force_states(panel, design, params, u, node) * w[g] for g, node in enumerate(b)])
        legacy[u] = (at_nodes / at_nodes.max(0)).sum(0)
    legacy /= legacy.sum(1, keepdims=True)
    joint = brute_force(panel, design, params, PaperGrid(), "clarity")
    np.testing.assert_allclose(states, joint / joint.sum(1, keepdims=True), atol=1e-10)
    assert np.abs(states - legacy).max() > 0.05


def brute_force_states(panel, design, params, u, b):
    logits = np.log(params["prevalence"]) + design[u] @ params["slope"].T
    prior = np.exp(logits - logsumexp(logits))
    votes = np.flatnonzero(panel.vote_cell == u)
    emission = _tilt(params["emission"], b)[panel.vote_judge[votes], :, panel.vote_category[votes]]
    return prior * np.prod(emission, axis=0) if len(votes) else prior


def test_a_vanishing_cell_effect_is_dawid_skene(make_panel, make_params):
    panel = make_panel(9)
    params = make_params(9, panel, 3) | {"sigma": np.asarray(1e-8)}
    totals = []
    for dependence in ("none", "clarity"):
        model = LatentClass(dependence=dependence, prevalence_formula=FORMULA)
        totals.append(np.asarray(model.log_likelihood(params, model.prepare(panel).data)))
    np.testing.assert_allclose(totals[0], totals[1], atol=1e-12)


@pytest.mark.parametrize("space", ["probability", "log"])
def test_gradient_equals_finite_differences(make_panel, space):
    panel = make_panel(10)
    model = LatentClass(prevalence_formula=FORMULA)
    data = with_space(model.prepare(panel).data, space)
    trace = handlers.trace(handlers.seed(model, 1)).get_trace(data)
    point = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    z = numpyro.infer.util.unconstrain_fn(model, (data,), {}, point)
    flat, back = jax.flatten_util.ravel_pytree(z)

    def potential(x):
        return potential_energy(model, (data,), {}, back(x))

    gradient = jax.jit(jax.grad(potential))(flat)
    value = jax.jit(potential)
    step = 1e-5
    numeric = [(value(flat.at[i].add(step)) - value(flat.at[i].add(-step))) / (2 * step) for i in range(len(flat))]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


def test_log_prior_is_scipys(make_panel, make_params):
    panel = make_panel(11)
    model = LatentClass(prevalence_formula=FORMULA)
    params = make_params(11, panel, 3)
    found = model.log_prior(params, model.prepare(panel).data)
    alpha = 1 + 7 * np.eye(3)
    rows = [stats.dirichlet.logpdf(params["emission"][j, k], alpha[k]) for j in range(3) for k in range(3)]
    assert float(found["emission"]) == pytest.approx(sum(rows))
    assert float(found["prevalence"]) == pytest.approx(stats.dirichlet.logpdf(params["prevalence"], np.ones(3)))
    assert float(found["sigma"]) == pytest.approx(stats.halfnorm.logpdf(1.1))
    # A normal of K independent values, seen on the K − 1 dims of its zero-sum part.
    zero_sum = -0.5 * np.square(params["slope"]).sum() - 0.5 * 3 * 2 * np.log(2 * np.pi)
    assert float(found["slope"]) == pytest.approx(zero_sum)


def test_every_site_is_named_by_its_plates(make_panel):
    model = LatentClass(prevalence_formula=FORMULA)
    data = model.prepare(make_panel(12)).data
    trace = handlers.trace(handlers.seed(model, 2)).get_trace(data)
    frames = {f.name for site in trace.values() for f in site.get("cond_indep_stack", [])}
    assert frames == {"judge", "state", "effect"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dependence": "clarty"}, r"'clarty' is unknown\. Did you mean 'clarity'\? Allowed: none, clarity"),
        ({"prevalence_formula": "~ sorce"}, r"names 'sorce'.* Did you mean 'source'\? Columns: participant_id"),
        ({"prevalence_formula": "source ~ dimension"}, "has a left-hand side"),
        ({"prevalence_formula": "~ source +"}, "cannot be read"),
    ],
)
def test_a_wrong_structure_is_named(make_panel, change, message):
    with pytest.raises(InputError, match=message):
        LatentClass(**change).prepare(make_panel(13))


def test_no_covariates_and_single_level_factors_leave_no_slope(make_panel):
    panel = make_panel(14)
    panel.cells["constant"] = "x"
    for formula in ("~ 1", "~ constant"):
        assert "slope" not in LatentClass(prevalence_formula=formula).prepare(panel).dims
