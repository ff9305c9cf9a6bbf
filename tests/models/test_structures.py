"""Every structure of the family against enumeration in loops, which shares no code with the package."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import constrain_fn, potential_energy
from scipy import integrate, stats
from scipy.special import logsumexp

from evidial_bayes.data.errors import InputError
from evidial_bayes.models.emission.accuracy import ClassConditional, OneCoin
from evidial_bayes.models.emission.dirichlet import AnchoredDirichlet, DiagonalDirichlet
from evidial_bayes.models.emission.pooled import PooledRows
from evidial_bayes.models.emission.predictor import NormalPredictor
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.priors import Misreading
from evidial_bayes.models.quadrature import GaussHermite

NODES = 5
HALF = dist.HalfNormal(1.0)
FAMILIES = {"j0": "f", "j1": "g", "j2": "f", "j3": "h"}


def family_panel(make_panel, seed, **how):
    """A random panel whose four judges are of three families of unequal size."""
    panel = make_panel(seed, n_judges=4, **how)
    judges = panel.judges.assign(judge_family=[FAMILIES[j] for j in panel.judges.index])
    return replace(panel, judges=judges)


def draw_params(seed, model, data):
    """Values of all sites of the posterior, from the prior's program: only their spread matters."""
    trace = handlers.trace(handlers.seed(model, seed)).get_trace(data)
    return {
        name: np.asarray(site["value"]) for name, site in trace.items() if site["type"] in ("sample", "deterministic")
    }


def enumerate_joint(model, panel, params):
    """Joint probability of votes and state at each node of the participant's effect: [cell, state, node]."""
    n_states, n_categories = len(panel.codebook.states), len(panel.codebook.categories)
    reading = list(panel.codebook.reading)
    x, w = np.polynomial.hermite.hermgauss(NODES)
    x, w = np.sqrt(2) * x, w / np.sqrt(np.pi)
    one = ([0.0], [1.0])
    cell_x, cell_w = (x, w) if model.dependence != "none" else one
    part_x, part_w = (params["participant_sigma"] * x, w) if model.participant_effect is not None else one
    fam_x, fam_w = (params["family_sigma"] * x, w) if model.family_effect is not None else one
    families = sorted(set(FAMILIES.values()))
    strata = sorted(set(panel.cells[model.stratum])) if model.stratum else None
    centre = (n_categories - 1) / 2

    def score(k, y, categories_read):
        return float(categories_read[k] == y) if model.dependence == "clarity" else y - centre

    def loading(j, k):
        if model.dependence == "none":
            return 0.0
        sigma = params["sigma"]
        return float({"shared": lambda: sigma, "state": lambda: sigma[k], "judge": lambda: sigma[j]}[model.loading]())

    def vote(u, j, k, y, shift):
        e = params["emission"]
        e = e[strata.index(panel.cells[model.stratum].iloc[u]), j, k] if strata else e[j, k]
        if model.link == "probit":
            step = score(k, 1, reading) - score(k, 0, reading)
            p = stats.norm.cdf(stats.norm.ppf(e[1]) + shift * step)
            return p if y == 1 else 1 - p
        tilted = [e[c] * np.exp(shift * score(k, c, reading)) for c in range(n_categories)]
        return tilted[y] / sum(tilted)

    def family(u, f, votes, k, b, c):
        own = [(j, y) for j, y in votes if FAMILIES[f"j{j}"] == f]
        if model.family_reading is not None:
            row = params["family_reading"][k, families.index(f)]
            shift = loading(None, k) * b + c if model.dependence != "none" else 0.0
            tilted = [
                row[a] * np.exp(shift * (float(a == k) if model.dependence == "clarity" else a - (n_states - 1) / 2))
                for a in range(n_states)
            ]
            return sum(
                tilted[a] / sum(tilted) * np.prod([vote(u, j, a, y, 0.0) for j, y in own]) for a in range(n_states)
            )
        return sum(
            fam_w[m] * np.prod([vote(u, j, k, y, loading(j, k) * b + c + fam_x[m]) for j, y in own])
            for m in range(len(fam_x))
        )

    joint = np.zeros((len(panel.cells), n_states, len(part_x)))
    for u in range(len(panel.cells)):
        votes = [(panel.vote_judge[v], panel.vote_category[v]) for v in np.flatnonzero(panel.vote_cell == u)]
        for k, h in product(range(n_states), range(len(part_x))):
            joint[u, k, h] = sum(
                cell_w[g] * np.prod([family(u, f, votes, k, cell_x[g], part_x[h]) for f in families])
                for g in range(len(cell_x))
            )
        if model.misreading is not None:
            joint[u] = params["misreading"] @ joint[u]
        for k in range(n_states):
            joint[u, k] *= 1.0 if panel.constructed[u] else params["prevalence"][k]
            joint[u, k] *= float(panel.known[u] in (-1, k))
    return joint, np.asarray(part_w)


STRUCTURES = {
    f"{dependence}-{loading}": {"dependence": dependence, "loading": loading}
    for dependence in ("clarity", "severity")
    for loading in ("shared", "state", "judge")
} | {
    "family": {"family_effect": HALF},
    "family-severity-judge": {"family_effect": HALF, "dependence": "severity", "loading": "judge"},
    "reading": {"family_reading": Misreading(), "dependence": "none"},
    "reading-clarity": {"family_reading": Misreading()},
    "reading-severity-state": {"family_reading": Misreading(), "dependence": "severity", "loading": "state"},
    "misreading": {"misreading": Misreading()},
    "misreading-none": {"misreading": Misreading(), "dependence": "none"},
    "misreading-reading": {"misreading": Misreading(), "family_reading": Misreading()},
    "misreading-family-judge": {"misreading": Misreading(), "family_effect": HALF, "loading": "judge"},
    "stratum": {"stratum": "source"},
    "stratum-judge-family": {"stratum": "source", "loading": "judge", "family_effect": HALF},
    "participant": {"participant_effect": HALF},
    "participant-severity-state": {"participant_effect": HALF, "dependence": "severity", "loading": "state"},
    "participant-family-misreading": {"participant_effect": HALF, "family_effect": HALF, "misreading": Misreading()},
    "participant-reading": {"participant_effect": HALF, "family_reading": Misreading()},
    "signed": {"loading": "judge", "sigma": dist.Normal(0.0, 1.0)},
}  # fmt: skip


def make(**how):
    return LatentClass(prevalence_formula="~ 1", quadrature=GaussHermite(NODES), **how)


@pytest.mark.parametrize("space", ["probability", "log"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_likelihood_and_states_equal_enumeration(make_panel, name, space):
    model = make(**STRUCTURES[name])
    panel = family_panel(make_panel, 21, known=True)
    prepared = model.prepare(panel)
    data = replace(prepared.data, space=space)
    params = draw_params(3, model, data)
    joint, node_weight = enumerate_joint(model, panel, params)
    unit = panel.participant
    by_node = joint.sum(1)
    units = np.array([np.prod(by_node[unit == p], axis=0) for p in range(unit.max() + 1)]) * node_weight
    if model.participant_effect is None:
        units = by_node
    total = np.log(units.sum(1)).sum()
    node = units / units.sum(1, keepdims=True)
    node = node[unit] if model.participant_effect is not None else np.ones_like(by_node)
    states = (joint / joint.sum(1, keepdims=True) * node[:, None]).sum(-1)
    np.testing.assert_allclose(model.total_log_likelihood(params, data), total, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        np.asarray(model.log_likelihood(params, data))[prepared.pattern], np.log(by_node @ node_weight), atol=1e-10
    )
    np.testing.assert_allclose(
        np.asarray(model.state_probabilities(params, data))[prepared.pattern], states, atol=1e-10
    )


@pytest.mark.parametrize("dependence", ["clarity", "severity"])
@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.parametrize("loading", ["shared", "state", "judge"])
def test_two_categories_equal_enumeration(make_panel, dependence, link, loading):
    model = make(dependence=dependence, link=link, loading=loading, emission=NormalPredictor())
    panel = family_panel(make_panel, 22, n_states=2)
    prepared = model.prepare(panel)
    params = draw_params(4, model, prepared.data)
    joint, _ = enumerate_joint(model, panel, params)
    found = np.asarray(model.log_likelihood(params, prepared.data))[prepared.pattern]
    np.testing.assert_allclose(found, np.log(joint.sum(1)[:, 0]), atol=1e-10)


def test_given_a_participants_effect_cells_are_independent(make_panel):
    model = make(participant_effect=HALF)
    panel = family_panel(make_panel, 23)
    prepared = model.prepare(panel)
    params = draw_params(5, model, prepared.data)
    joint, _ = enumerate_joint(model, panel, params)
    nodes = params["participant_sigma"] * np.sqrt(2) * np.polynomial.hermite.hermgauss(NODES)[0]
    at = np.arange(len(panel.coords["participant"])) % NODES
    given = {**params, "participant_effect": nodes[at]}
    here = joint[np.arange(len(joint)), :, at[panel.participant]]
    found = np.asarray(model.log_likelihood(given, prepared.data))[prepared.pattern]
    np.testing.assert_allclose(found, np.log(here.sum(1)), atol=1e-10)
    found = np.asarray(model.state_probabilities(given, prepared.data))[prepared.pattern]
    np.testing.assert_allclose(found, here / here.sum(1, keepdims=True), atol=1e-10)


def test_drawn_effects_have_their_posterior(make_panel):
    model = make(participant_effect=HALF)
    panel = family_panel(make_panel, 24)
    prepared = model.prepare(panel)
    params = {**draw_params(6, model, prepared.data), "participant_sigma": np.asarray(1.5)}
    joint, weight = enumerate_joint(model, panel, params)
    by_node = joint.sum(1)
    posterior = np.array([np.prod(by_node[panel.participant == p], 0) for p in range(panel.participant.max() + 1)])
    posterior = posterior * weight
    posterior /= posterior.sum(1, keepdims=True)
    n = 4000
    keys = jax.random.split(jax.random.key(1), n)
    drawn = np.asarray(jax.vmap(lambda k: model.draw_effects(k, params, prepared.data)["participant_effect"])(keys))
    nodes = 1.5 * np.sqrt(2) * np.polynomial.hermite.hermgauss(NODES)[0]
    share = (np.abs(drawn[..., None] - nodes) < 1e-9).mean(0)
    assert np.all(np.abs(share - posterior) < 5 * np.sqrt(posterior * (1 - posterior) / n) + 1e-3)
    # The states given drawn effects average to the states with the effects summed out.
    states = jax.jit(jax.vmap(lambda e: model.state_probabilities({**params, "participant_effect": e}, prepared.data)))
    sd = 0.5
    found, exact = states(drawn).mean(0), model.state_probabilities(params, prepared.data)
    assert np.abs(found - exact).max() < 5 * sd / np.sqrt(n)


def test_evidence_of_families_is_theirs_alone(make_panel):
    model = make()
    panel = family_panel(make_panel, 25)
    prepared = model.prepare(panel)
    params = draw_params(7, model, prepared.data)
    prevalence, families = model.log_evidence(params, prepared.data)
    np.testing.assert_allclose(np.exp(prevalence), np.tile(params["prevalence"], (len(prevalence), 1)))
    for f, name in enumerate(sorted(set(FAMILIES.values()))):
        own = [FAMILIES[f"j{j}"] == name for j in panel.vote_judge]
        alone = replace(panel, vote_cell=panel.vote_cell[own], vote_judge=panel.vote_judge[own],
                        vote_category=panel.vote_category[own])  # fmt: skip
        joint, _ = enumerate_joint(model, alone, params)
        found = np.exp(np.asarray(families)[f][prepared.pattern])
        np.testing.assert_allclose(found, joint[..., 0] / params["prevalence"], atol=1e-10)


@pytest.mark.parametrize("name", STRUCTURES)
def test_gradient_equals_finite_differences(make_panel, name):
    model = make(**STRUCTURES[name])
    panel = family_panel(make_panel, 26, known=True)
    data = jax.tree.map(jnp.asarray, model.prepare(panel).data)
    potential, flat, _ = unconstrained(model, data, 8)
    value, gradient = jax.jit(potential), jax.jit(jax.grad(potential))(flat)
    step = 1e-5
    rng = np.random.default_rng(1)
    for _ in range(4):
        direction = rng.normal(size=flat.shape)
        numeric = (value(flat + step * direction) - value(flat - step * direction)) / (2 * step)
        np.testing.assert_allclose(gradient @ direction, numeric, rtol=1e-6, atol=1e-6)


def unconstrained(model, data, seed):
    trace = handlers.trace(handlers.seed(model, seed)).get_trace(data)
    point = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    z = numpyro.infer.util.unconstrain_fn(model, (data,), {}, point)
    flat, back = jax.flatten_util.ravel_pytree(z)
    return (lambda x: potential_energy(model, (data,), {}, back(x))), flat, back


EMISSIONS = [DiagonalDirichlet(), AnchoredDirichlet(), OneCoin(), ClassConditional(), PooledRows()]


@pytest.mark.parametrize("emission", EMISSIONS, ids=lambda e: type(e).__name__)
def test_densities_of_prior_and_program_differ_by_the_jacobian_alone(make_panel, emission):
    """What the sampler sees is likelihood, prior on the scale of the sites, and the volume between the two scales."""
    model = make(emission=emission, misreading=Misreading(), dependence="clarity")
    data = jax.tree.map(jnp.asarray, model.prepare(family_panel(make_panel, 27, known=True)).data)
    potential, flat, back = unconstrained(model, data, 9)
    sites = model._sites(data)
    names = [name for site in sites for name in site.log_prior(draw_params(9, model, data))]

    def free(x):
        """Coordinates of the sites without those that sum to one with the others."""
        params = constrain_fn(model, (data,), {}, back(x), return_deterministic=True)
        simplex = ("prevalence", "emission", "misreading", "population")
        return jnp.concatenate([jnp.ravel(params[n][..., :-1] if n in simplex else params[n]) for n in names])

    params = constrain_fn(model, (data,), {}, back(flat), return_deterministic=True)
    jacobian = np.linalg.slogdet(np.asarray(jax.jacfwd(free)(flat)))[1]
    density = model.total_log_likelihood(params, data) + sum(model.log_prior(params, data).values())
    assert float(-potential(flat)) == pytest.approx(float(density) + jacobian, abs=1e-8)


def test_anchors_are_counted_and_leave_the_likelihood(make_panel):
    panel = family_panel(make_panel, 28, known=True)
    model = make(emission=AnchoredDirichlet(weight=0.5, diagonal=3.0, off_diagonal=1.0), dependence="none")
    data = model.prepare(panel).data
    params = draw_params(10, model, data)
    counts = np.zeros((4, 3, 3))
    for cell, judge, category in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True):
        if panel.constructed[cell]:
            counts[judge, panel.known[cell], category] += 1
    assert counts.sum() > 0
    alpha = 1 + 2 * np.eye(3) + 0.5 * counts
    expected = sum(stats.dirichlet.logpdf(params["emission"][j, k], alpha[j, k]) for j in range(4) for k in range(3))
    assert float(model.log_prior(params, data)["emission"]) == pytest.approx(expected)
    joint, _ = enumerate_joint(model, panel, params)
    total = np.log(joint.sum((1, 2)))[~panel.constructed].sum()
    assert float(model.total_log_likelihood(params, data)) == pytest.approx(total)


def test_the_weight_is_that_of_cells_without_a_known_state(make_panel):
    panel = family_panel(make_panel, 29, known=True)
    model = make(unlabelled_weight=0.3)
    prepared = model.prepare(panel)
    params = draw_params(11, model, prepared.data)
    cells = np.log(enumerate_joint(model, panel, params)[0].sum((1, 2)))
    total = cells[panel.known >= 0].sum() + 0.3 * cells[panel.known < 0].sum()
    assert float(model.total_log_likelihood(params, prepared.data)) == pytest.approx(total)


SPECIAL = {
    "family effect of size zero": ({"family_effect": HALF}, {}, {"family_sigma": 1e-9}),
    "participant effect of size zero": ({"participant_effect": HALF}, {}, {"participant_sigma": 1e-9}),
    "no misreading": ({"misreading": Misreading()}, {}, {"misreading": np.eye(3)}),
    "faultless families": (
        {"family_reading": Misreading(), "dependence": "none"},
        {"dependence": "none"},
        {"family_reading": np.repeat(np.eye(3)[:, None], 3, 1)},
    ),
    "equal loadings of states": ({"loading": "state"}, {}, {"sigma": np.full(3, 0.7)}),
    "equal loadings of judges": ({"loading": "judge"}, {}, {"sigma": np.full(4, 0.7)}),
    "severity of size zero": ({"dependence": "severity"}, {"dependence": "none"}, {"sigma": 1e-9}),
    "whole weight": ({"unlabelled_weight": 1.0}, {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_cases_are_equal(make_panel, name):
    larger, smaller, values = SPECIAL[name]
    panel = family_panel(make_panel, 30, known=True)
    large, small = make(**larger), make(**smaller)
    data = large.prepare(panel).data
    params = {**draw_params(12, large, data), **{k: np.asarray(v) for k, v in values.items()}}
    reduced = {**params, "sigma": np.asarray(0.7)} if "loading" in larger else params
    reduced = {
        k: v
        for k, v in reduced.items()
        if k not in ("family_sigma", "participant_sigma", "misreading", "family_reading")
    }
    if "loading" not in larger and "sigma" in params:
        reduced["sigma"] = params["sigma"]
    expected = small.total_log_likelihood(reduced, small.prepare(panel).data)
    assert float(large.total_log_likelihood(params, data)) == pytest.approx(float(expected), abs=1e-7)


def test_strata_with_equal_emissions_are_one(make_panel):
    panel = family_panel(make_panel, 31)
    split, whole = make(stratum="source"), make()
    params = draw_params(13, whole, whole.prepare(panel).data)
    both = {**params, "emission": np.stack([params["emission"]] * 2)}
    expected = whole.total_log_likelihood(params, whole.prepare(panel).data)
    assert float(split.total_log_likelihood(both, split.prepare(panel).data)) == pytest.approx(float(expected))


def test_one_coin_is_the_class_conditional_with_equal_accuracies(make_panel):
    panel = family_panel(make_panel, 32)
    accuracy = np.array([0.5, 0.6, 0.7, 0.8])
    emissions = []
    for prior, value in ((OneCoin(), accuracy), (ClassConditional(), np.repeat(accuracy[:, None], 3, 1))):
        model = make(emission=prior)
        data = model.prepare(panel).data
        seeded = handlers.seed(handlers.substitute(model, {"accuracy": value}), 1)
        emissions.append(np.asarray(handlers.trace(seeded).get_trace(data)["emission"]["value"]))
    np.testing.assert_allclose(emissions[0], emissions[1])
    off = (1 - accuracy) / 2
    for j in range(4):
        np.testing.assert_allclose(emissions[0][j], off[j] + (accuracy[j] - off[j]) * np.eye(3))


def test_probit_severity_has_its_closed_form_margin(make_panel):
    """P(Y = 1 | k) = Φ(a / √(1 + λ²)): Qu, Tan & Kutner (1996)."""
    panel = make_panel(33, n_states=2, n_judges=2)
    one = panel.n_votes == 1
    model = LatentClass(dependence="severity", link="probit", emission=NormalPredictor(), prevalence_formula="~ 1",
                        quadrature=GaussHermite(60))  # fmt: skip
    prepared = model.prepare(panel)
    params = draw_params(14, model, prepared.data)
    found = np.exp(model.log_likelihood(params, prepared.data))[prepared.pattern][one]
    first = {c: (j, y) for c, j, y in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True)}
    for cell, value in zip(np.flatnonzero(one), found, strict=True):
        j, y = first[cell]
        margin = stats.norm.cdf(params["predictor"][j] / np.sqrt(1 + params["sigma"] ** 2))
        assert value == pytest.approx(params["prevalence"] @ (margin if y == 1 else 1 - margin), abs=1e-6)
    assert one.any()


def test_nested_quadrature_stands_for_the_double_integral(make_panel):
    panel = family_panel(make_panel, 34)
    model = LatentClass(family_effect=HALF, prevalence_formula="~ 1", quadrature=GaussHermite(25))
    prepared = model.prepare(panel)
    params = {**draw_params(15, model, prepared.data), "sigma": np.asarray(0.8), "family_sigma": np.asarray(0.6)}
    found = np.exp(np.asarray(model.log_likelihood(params, prepared.data)))[prepared.pattern]
    grid = np.linspace(-8, 8, 801)
    density = stats.norm.pdf(grid)
    for u in np.flatnonzero(panel.n_votes > 2)[:3]:
        votes = [(panel.vote_judge[v], panel.vote_category[v]) for v in np.flatnonzero(panel.vote_cell == u)]
        total = 0.0
        for k in range(3):
            at_b = density.copy()
            for f in sorted({FAMILIES[f"j{j}"] for j, _ in votes}):
                shift = 0.8 * grid[:, None] + 0.6 * grid
                inner = density * np.ones_like(shift)
                for j, y in votes:
                    if FAMILIES[f"j{j}"] == f:
                        tilted = params["emission"][j, k] * np.exp(shift[..., None] * np.eye(3)[k])
                        inner = inner * tilted[..., y] / tilted.sum(-1)
                at_b = at_b * integrate.trapezoid(inner, grid, axis=1)
            total += params["prevalence"][k] * integrate.trapezoid(at_b, grid)
        assert found[u] == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("structure", [{"family_effect": HALF}, {"family_reading": Misreading()}], ids=str)
def test_cost_is_linear_in_families(make_panel, structure):
    """Families of two judges each: twice the families take no more than about twice the operations."""
    flops = []
    for n_families in (4, 8, 16):
        panel = make_panel(35, n_cells=60, n_judges=2 * n_families)
        panel = replace(panel, judges=panel.judges.assign(judge_family=[f"f{i // 2}" for i in range(2 * n_families)]))
        model = make(**structure)
        data = jax.tree.map(jnp.asarray, model.prepare(panel).data)
        params = {k: jnp.asarray(v) for k, v in draw_params(16, model, data).items()}
        cost = jax.jit(model.total_log_likelihood).lower(params, data).compile().cost_analysis()
        flops.append(cost["flops"])
    assert flops[2] - flops[1] < 2.5 * (flops[1] - flops[0])


def test_parameters_are_counted(make_panel):
    """Three binary judges, two classes and a loading: 3 · 2 + 1 + 1."""
    panel = make_panel(36, n_states=2)
    model = make(dependence="severity")
    assert model.n_parameters(model.prepare(panel).data) == 8
    four = family_panel(make_panel, 37)
    for how, expected in (
        ({}, 4 * 3 * 2 + 2 + 1),
        ({"loading": "judge"}, 24 + 2 + 4),
        ({"misreading": Misreading()}, 24 + 2 + 1 + 6),
        ({"family_reading": Misreading()}, 24 + 2 + 1 + 3 * 6),
        ({"stratum": "source"}, 48 + 2 + 1),
        ({"emission": OneCoin()}, 4 + 2 + 1),
        ({"emission": ClassConditional(), "dependence": "none"}, 12 + 2),
        ({"emission": PooledRows()}, 24 + 2 + 1),
    ):
        model = make(**how)
        assert model.n_parameters(model.prepare(four).data) == expected, how


@pytest.mark.parametrize("name", STRUCTURES)
def test_sites_have_their_dims_in_one_order(make_panel, name):
    model = make(**STRUCTURES[name])
    prepared = model.prepare(family_panel(make_panel, 38))
    params = draw_params(17, model, prepared.data)
    seen = []
    for site, dims in prepared.dims.items():
        assert params[site].shape == tuple(len(prepared.coords[dim]) for dim in dims), site
        places = [seen.index(dim) for dim in dims if dim in seen]
        assert places == sorted(places), site
        seen += [dim for dim in dims if dim not in seen]
    trace = handlers.trace(handlers.seed(model, 1)).get_trace(prepared.data)
    frames = {f.name for site in trace.values() for f in site.get("cond_indep_stack", [])}
    assert frames <= {"judge", "state", "effect", "stratum", "judge_family"}


def test_signed_loadings_are_reported_with_a_positive_mean(make_panel):
    model = make(loading="judge", sigma=dist.Normal(0.0, 1.0))
    data = model.prepare(family_panel(make_panel, 39)).data
    value = np.array([-1.0, 0.2, -0.5, 0.1])
    traces = [
        handlers.trace(handlers.seed(handlers.substitute(model, {"sigma_signed": sign * value}), 1)).get_trace(data)
        for sign in (1, -1)
    ]
    reported = [np.asarray(trace["sigma"]["value"]) for trace in traces]
    np.testing.assert_allclose(reported[0], -value)
    np.testing.assert_allclose(reported[1], -value)
    assert float(traces[0]["votes"]["fn"].log_factor) == pytest.approx(float(traces[1]["votes"]["fn"].log_factor))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"loading": "judges"}, r"model\.loading: 'judges' is unknown\. Did you mean 'judge'\? Allowed: shared, state"),
        ({"link": "cauchit"}, r"model\.link: 'cauchit' is unknown.*logit, probit"),
        ({"dependence": "none", "loading": "judge"}, r"model\.loading: 'judge' needs a cell effect"),
        ({"dependence": "none", "family_effect": HALF}, r"model\.family_effect needs .*dependence clarity or severity"),
        ({"dependence": "none", "participant_effect": HALF}, r"model\.participant_effect needs"),
        ({"family_effect": HALF, "family_reading": Misreading()}, "exclude each other"),
        ({"loading": "judge", "family_reading": Misreading()}, r"model\.loading: 'judge' has no place"),
        ({"unlabelled_weight": 1.5}, r"model\.unlabelled_weight: 1\.5 .*0 to 1"),
        ({"link": "probit"}, r"probit is for two categories; codebook 'toy' has 3"),
        ({"emission": NormalPredictor()}, r"NormalPredictor is for two categories"),
        ({"stratum": "sorce"}, r"model\.stratum names 'sorce'.* Did you mean 'source'\?"),
    ],
)
def test_a_structure_that_cannot_be_is_refused(make_panel, how, message):
    with pytest.raises(InputError, match=message):
        make(**how).prepare(make_panel(40))


def test_a_stratum_needs_a_value_for_every_cell(make_panel):
    panel = make_panel(41)
    panel.cells.loc["u03", "source"] = None
    with pytest.raises(InputError, match=r"model\.stratum: 'source' is empty for 1 cells, the first is 'u03'"):
        make(stratum="source").prepare(panel)


def test_logs_and_probabilities_agree_for_states(make_panel):
    """The two spaces are two ways to one number, also where a cell has no vote."""
    panel = family_panel(make_panel, 42)
    model = make(family_effect=HALF, misreading=Misreading())
    data = model.prepare(panel).data
    params = draw_params(18, model, data)
    both = [model.state_probabilities(params, replace(data, space=s)) for s in ("probability", "log")]
    np.testing.assert_allclose(*both, atol=1e-12)
    assert logsumexp(np.log(both[0]), axis=1) == pytest.approx(0.0, abs=1e-12)
