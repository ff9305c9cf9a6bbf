"""Every structure of RE-LCA against sums over all its hidden values in plain loops, which share no code with it."""

import math
from dataclasses import replace
from functools import cache
from itertools import product
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer.util import potential_energy, unconstrain_fn
from scipy import integrate, stats
from scipy.linalg import helmert

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.models.emission.dirichlet import AnchoredDirichlet
from evidial_bayes.models.emission.predictor import NormalPredictor
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.priors import Misreading
from evidial_bayes.models.quadrature import GaussHermite, PaperGrid

HALF, SIGNED, READ = dist.HalfNormal(1.0), dist.Normal(0.0, 1.0), Misreading(0.8, 10.0)
# Families of three, two and one; in the order of their first judges, which is not that of their names.
FAMILY = {"j0": "z", "j1": "b", "j2": "z", "j3": "z", "j4": "m", "j5": "b"}
FAMILIES = ["z", "b", "m"]
BOOKS = {
    # Judges have four categories for three states, in another order.
    "three": (["s0", "s1", "s2"], ["c0", "c1", "c2", "c3"], {"s0": "c1", "s1": "c0", "s2": "c3"}),
    "two": (["no", "yes"], ["yes", "no"], {"no": "no", "yes": "yes"}),
}


@cache
def small_panel(kind="three", *, replicates=False, seed=7):
    """Eleven cells of four participants: votes are missing, two cells are alike, four are known, one has no vote."""
    rng = np.random.default_rng(seed)
    states, categories, reads = BOOKS[kind]
    book = Codebook.from_mapping({"name": kind, "states": states, "categories": categories, "reads": reads})
    ids = [f"u{i:02d}" for i in range(11)]
    known = {1: (states[0], "constructed"), 2: (states[1], "constructed"), 6: (states[-1], "sampled"),
             9: (states[1], "sampled")}  # fmt: skip
    cells = pd.DataFrame(
        {
            "cell_id": ids,
            "participant_id": [f"p{i}" for i in (0, 0, 1, 2, 3, 3, 0, 2, 3, 2, 0)],
            "source": list("abaabbabbaa"),
            "known_state": [known.get(i, ("", ""))[0] for i in range(11)],
            "known_by": [known.get(i, ("", ""))[1] for i in range(11)],
        }
    )
    rows = [
        (cell, judge, rng.choice(categories), str(r), FAMILY[judge])
        for cell in ids[:-1]
        for judge in FAMILY
        for r in range(2 if replicates and judge == "j0" else 1)
        if rng.random() < 0.75
    ]
    rows = [row for row in rows if row[0] != "u05"] + [("u05", *row[1:]) for row in rows if row[0] == "u04"]
    # A judge that the gate excludes, first by name and with a family to itself, leaves no trace.
    rows += [(cell, "a", "nonsense", "0", "a") for cell in ids]
    votes = pd.DataFrame(rows, columns=["cell_id", "judge", "vote", "replicate", "judge_family"])
    return build_panel(votes, cells, book)


def make(**how):
    return LatentClass(**{"prevalence_formula": "~ source", "quadrature": GaussHermite(5), **how})


def random_values(seed, prepared, how):
    """Values of the sites, of the shapes that dims and coords say."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, dims in prepared.dims.items():
        shape = tuple(len(prepared.coords[dim]) for dim in dims)
        if name == "slope":
            values[name] = (value := rng.normal(size=shape)) - value.mean(0)
        elif name == "sigma" and how.get("sigma") is SIGNED:
            value = rng.normal(size=shape)
            values[name] = value * np.sign(value.mean())
        elif name.endswith("sigma"):
            values[name] = rng.uniform(0.4, 1.3, size=shape)
        else:
            values[name] = 0.05 / shape[-1] + 0.95 * rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    return values


# ------------------------------------------------------------------ the oracle


def rule_nodes(rule, sigma):
    """Nodes and weights of a normal effect, written out again."""
    if isinstance(rule, PaperGrid):
        b = [-6 + 0.15 * g for g in range(81)]
        w = [math.exp(-((x / sigma) ** 2) / 2) for x in b]
        return b, [v / sum(w) for v in w]
    x, w = np.polynomial.hermite.hermgauss(rule.nodes)
    return list(math.sqrt(2) * sigma * x), list(w / math.sqrt(math.pi))


def tilted(row, scores, shift):
    odds = [p * math.exp(shift * s) for p, s in zip(row, scores, strict=True)]
    return [o / sum(odds) for o in odds]


def oracle(panel, how, params):
    """A function from a cell and some votes to their probability ``[state][participant node]``; weights of the nodes."""
    states, categories = range(len(panel.codebook.states)), range(len(panel.codebook.categories))
    reading = [list(panel.codebook.categories).index(panel.codebook.reads[s]) for s in panel.codebook.states]
    dependence, loading = how.get("dependence", "clarity"), how.get("loading", "shared")
    rule, once, normal = how.get("quadrature", GaussHermite(5)), ([0.0], [1.0]), NormalDist()
    strata = sorted(set(panel.cells["source"]))
    # A shared loading scales the effect itself; others multiply one of size one.
    size = float(params["sigma"]) if dependence != "none" and loading == "shared" else 1.0
    cell_b, cell_w = rule_nodes(rule, size) if dependence != "none" else once
    family_b, family_w = rule_nodes(rule, params["family_sigma"]) if "family_effect" in how else once
    part_b, part_w = rule_nodes(rule, params["participant_sigma"]) if "participant_effect" in how else once

    def score(state_reads, y, n):
        return float(state_reads == y) if dependence == "clarity" else y - (n - 1) / 2

    def effect(k, j, b):
        return b if loading == "shared" else params["sigma"][k if loading == "state" else j] * b

    @cache
    def emission(stratum, j, k, shift):
        row = params["emission"][stratum, j, k] if "stratum" in how else params["emission"][j, k]
        if how.get("link", "logit") == "logit":
            return tilted(row, [score(reading[k], y, len(categories)) for y in categories], shift)
        step = score(reading[k], 1, 2) - score(reading[k], 0, 2)
        a = normal.inv_cdf(row[1]) + shift * step
        return [normal.cdf(-a), normal.cdf(a)]

    def members(stratum, votes, k, shift_of):
        value = 1.0
        for j, y in votes:
            value *= emission(stratum, j, k, shift_of(j))[y]
        return value

    def family(stratum, f, votes, k, b, c):
        if "family_reading" in how:
            row = params["family_reading"][k][f]
            if dependence != "none":
                row = tilted(row, [score(k, a, len(states)) for a in states], effect(k, None, b) + c)
            return sum(row[a] * members(stratum, votes, a, lambda j: 0.0) for a in states)
        return sum(
            w * members(stratum, votes, k, lambda j, d=d: effect(k, j, b) + c + d)
            for d, w in zip(family_b, family_w, strict=True)
        )

    def given_state(u, votes):
        stratum = strata.index(panel.cells["source"].iloc[u])
        of_family = [[(j, y) for j, y in votes if FAMILY[f"j{j}"] == name] for name in FAMILIES]
        apparent = [
            [
                sum(
                    w * math.prod(family(stratum, f, own, k, b, c) for f, own in enumerate(of_family))
                    for b, w in zip(cell_b, cell_w, strict=True)
                )
                for c in part_b
            ]
            for k in states
        ]
        if "misreading" not in how:
            return np.array(apparent)
        matrix = params["misreading"]
        return np.array(
            [[sum(matrix[k][a] * apparent[a][h] for a in states) for h in range(len(part_b))] for k in states]
        )

    return given_state, np.array(part_w)


def prevalence_of(panel, params):
    """Prevalence ``[cell, state]``: the covariate is one dummy, centred over cells that are not constructed."""
    x = (panel.cells["source"] == "b").to_numpy(float)
    x = x - x[~panel.constructed].mean()
    slope = params["slope"][:, 0] if "slope" in params else np.zeros(len(params["prevalence"]))
    odds = params["prevalence"] * np.exp(x[:, None] * slope)
    return odds / odds.sum(1, keepdims=True)


def votes_of(panel):
    votes = [[] for _ in range(len(panel.cells))]
    for cell, j, y in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True):
        votes[cell].append((int(j), int(y)))
    return votes


def joint_of(panel, how, params):
    """Probability of each cell's votes and state ``[cell, state, participant node]``, and weights of the nodes."""
    given_state, node_w = oracle(panel, how, params)
    joint = np.array([given_state(u, votes) for u, votes in enumerate(votes_of(panel))])
    prior = np.where(panel.constructed[:, None], 1.0, prevalence_of(panel, params))
    possible = (panel.known[:, None] < 0) | (panel.known[:, None] == np.arange(joint.shape[1]))
    return joint * (prior * possible)[..., None], node_w


def node_posterior(panel, joint, node_w, weight=None):
    """Probability of a participant's votes, to the power of their weights, with each node: ``[participant, node]``."""
    weight = np.ones(len(joint)) if weight is None else weight
    cells = joint.sum(1) ** weight[:, None]
    return np.array([cells[panel.participant == p].prod(0) for p in range(4)]) * node_w


def total_of(panel, how, joint, node_w):
    weight = np.where(panel.known < 0, how.get("unlabelled_weight", 1.0), 1.0)
    if isinstance(how.get("emission"), AnchoredDirichlet):
        weight = weight * ~panel.constructed
    return np.log(node_posterior(panel, joint, node_w, weight).sum(1)).sum()


def log_prior_of(panel, how, params):
    """Log density by site with scipy, on the scale of the sites."""
    n_states, n_categories = len(panel.codebook.states), len(panel.codebook.categories)
    lean, found = np.eye(n_categories)[panel.codebook.reading], {}
    alpha = np.broadcast_to(1.0 + 7.0 * lean, params["emission"].shape).copy()
    if isinstance(how.get("emission"), AnchoredDirichlet):
        alpha = np.broadcast_to(1.0 + 2.0 * lean, params["emission"].shape).copy()
        for cell, j, y in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True):
            if panel.constructed[cell]:
                at = (["a", "b"].index(panel.cells["source"].iloc[cell]),) if "stratum" in how else ()
                alpha[(*at, j, panel.known[cell], y)] += 0.5
    eye = np.eye(n_states)
    misread = 10.0 * (0.8 * eye + 0.2 / (n_states - 1) * (1 - eye))
    for name, value in params.items():
        if name in ("emission", "prevalence", "family_reading", "misreading"):
            counts = {"emission": alpha, "prevalence": np.ones(n_states), "misreading": misread,
                      "family_reading": np.broadcast_to(misread[:, None], (n_states, 3, n_states))}[name]  # fmt: skip
            rows = zip(value.reshape(-1, value.shape[-1]), counts.reshape(-1, value.shape[-1]), strict=True)
            found[name] = sum(stats.dirichlet.logpdf(p, a) for p, a in rows)
        elif name == "slope":
            found[name] = -0.5 * np.square(value).sum() - 0.5 * (n_states - 1) * np.log(2 * np.pi)
        elif name == "sigma" and how.get("sigma") is SIGNED:
            found[name] = np.log(2) + stats.norm.logpdf(value).sum()
        else:
            found[name] = stats.halfnorm.logpdf(value).sum()
    return found


def coordinates_of(params, how):
    """Sampled values by site, and the log volume of the coordinates on the scale of the sites."""
    point, volume = {}, 0.0
    for name, value in params.items():
        if name in ("emission", "prevalence", "family_reading", "misreading"):
            point[f"{name}_log_ratio"] = np.log(value) @ helmert(value.shape[-1]).T
            volume += np.log(value).sum() + 0.5 * np.log(value.shape[-1]) * value[..., 0].size
        elif name == "slope":
            point["slope_by_effect"] = value.T
        elif name == "sigma" and how.get("sigma") is SIGNED:
            # The mirror image has the same density; what is reported stands for both.
            point["sigma_signed"], volume = -value, volume - np.log(2)
        else:
            point[name], volume = value, volume + np.log(value).sum()
    return point, volume


# ------------------------------------------------------------------ the structures

CROSSED = {
    f"{dependence}-{loading}": {"dependence": dependence, "loading": loading}
    for dependence, loading in product(("clarity", "severity"), ("shared", "state", "judge"))
}
THREE = {"none": {"dependence": "none"}, **CROSSED} | {
    "grid": {"quadrature": PaperGrid()},
    "grid-severity-judge": {"quadrature": PaperGrid(), "dependence": "severity", "loading": "judge"},
    "family": {"family_effect": HALF},
    "family-severity-judge": {"family_effect": HALF, "dependence": "severity", "loading": "judge"},
    "family-state-misreading": {"family_effect": HALF, "loading": "state", "misreading": READ},
    "family-judge-stratum": {"family_effect": HALF, "loading": "judge", "stratum": "source"},
    "reading-none": {"family_reading": READ, "dependence": "none"},
    "reading-clarity": {"family_reading": READ},
    "reading-clarity-state": {"family_reading": READ, "loading": "state"},
    "reading-severity": {"family_reading": READ, "dependence": "severity"},
    "reading-severity-state-stratum": {
        "family_reading": READ, "dependence": "severity", "loading": "state", "stratum": "source",
    },
    "reading-misreading": {"family_reading": READ, "misreading": READ},
    "reading-none-misreading-stratum": {
        "family_reading": READ, "dependence": "none", "misreading": READ, "stratum": "source",
    },
    "misreading-none": {"misreading": READ, "dependence": "none"},
    "misreading-clarity": {"misreading": READ},
    "misreading-severity-judge": {"misreading": READ, "dependence": "severity", "loading": "judge"},
    "stratum": {"stratum": "source"},
    "stratum-severity-judge": {"stratum": "source", "dependence": "severity", "loading": "judge"},
    "participant": {"participant_effect": HALF},
    "participant-severity-judge-stratum": {
        "participant_effect": HALF, "dependence": "severity", "loading": "judge", "stratum": "source",
    },
    "participant-family-misreading": {"participant_effect": HALF, "family_effect": HALF, "misreading": READ},
    "participant-reading-state": {"participant_effect": HALF, "family_reading": READ, "loading": "state"},
    "signed-judge": {"loading": "judge", "sigma": SIGNED},
    "signed-state-severity-family": {
        "loading": "state", "sigma": SIGNED, "dependence": "severity", "family_effect": HALF,
    },
    "signed-shared": {"sigma": SIGNED},
    "weight": {"unlabelled_weight": 0.3},
    "weight-participant": {"unlabelled_weight": 0.3, "participant_effect": HALF},
    "anchored": {"emission": AnchoredDirichlet(0.5, 3.0, 1.0)},
    "anchored-stratum-weight": {
        "emission": AnchoredDirichlet(0.5, 3.0, 1.0), "stratum": "source", "unlabelled_weight": 0.3,
    },
}  # fmt: skip
TWO = {
    f"two-{link}-{name}": {**how, "link": link}
    for link, (name, how) in product(("probit", "logit"), CROSSED.items())
} | {
    "two-probit-family-judge": {"link": "probit", "loading": "judge", "family_effect": HALF},
    "two-probit-severity-family-participant": {
        "link": "probit", "dependence": "severity", "family_effect": HALF, "participant_effect": HALF,
    },
    "two-probit-state-misreading-stratum": {
        "link": "probit", "loading": "state", "misreading": READ, "stratum": "source",
    },
}  # fmt: skip
REPLICATES = {"replicates": {}, "replicates-family-judge": {"family_effect": HALF, "loading": "judge"},
              "replicates-reading-participant": {"family_reading": READ, "participant_effect": HALF}}  # fmt: skip
STRUCTURES = {**THREE, **TWO, **REPLICATES}


@cache
def everything():
    """All structures that may be, 136 with three states and half as many again with the probit."""
    found = {}
    for dependence, loading, layer, misreading, stratum, participant, link in product(
        ("none", "clarity", "severity"), ("shared", "state", "judge"), ("", "family_effect", "family_reading"),
        (False, True), (False, True), (False, True), ("logit", "probit"),
    ):  # fmt: skip
        how = {"dependence": dependence, "loading": loading, "link": link}
        how |= {"family_effect": HALF} if layer == "family_effect" else {}
        how |= {"family_reading": READ} if layer == "family_reading" else {}
        how |= {"misreading": READ} if misreading else {}
        how |= {"stratum": "source"} if stratum else {}
        how |= {"participant_effect": HALF} if participant else {}
        try:
            make(**how)
        except InputError:
            continue
        found["-".join([link, dependence, loading, layer, *(k for k in how if k in ("misreading", "stratum",
                        "participant_effect"))])] = how  # fmt: skip
    return found


def panel_of(name):
    return small_panel("two" if "two" in name else "three", replicates="replicates" in name)


@cache
def solved(name):
    """Panel, model, prepared data, values and the oracle's probabilities of one structure."""
    how, panel = STRUCTURES[name], panel_of(name)
    model = make(**how)
    prepared = model.prepare(panel)
    params = random_values(len(name), prepared, how)
    return panel, how, model, prepared, params, *joint_of(panel, how, params)


def hold_against_oracle(panel, how, model, prepared, params, joint, node_w, space):
    data = replace(prepared.data, space=space)

    def cells(values):
        return np.asarray(values)[..., prepared.pattern, :]

    total = total_of(panel, how, joint, node_w)
    np.testing.assert_allclose(model.total_log_likelihood(params, data), total, rtol=0, atol=1e-10)
    found = cells(model.log_likelihood(params, data)[:, None])[:, 0]
    np.testing.assert_allclose(found, np.log(joint.sum(1) @ node_w), rtol=0, atol=1e-10)
    node = node_posterior(panel, joint, node_w)
    if "participant_effect" in how:
        node = node / node.sum(1, keepdims=True)
        states = (joint / joint.sum(1, keepdims=True) * node[panel.participant][:, None]).sum(-1)
    else:
        states = joint[..., 0] / joint[..., 0].sum(1, keepdims=True)
    np.testing.assert_allclose(cells(model.state_probabilities(params, data)), states, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", STRUCTURES)
def test_likelihood_and_states_equal_enumeration(name):
    for space in ("log",) if "replicates" in name else ("probability", "log"):
        hold_against_oracle(*solved(name), space)


@pytest.mark.slow
@pytest.mark.parametrize("name", everything())
def test_all_structures_equal_enumeration(name):
    how, panel = everything()[name], small_panel("two" if "probit" in name else "three", seed=11)
    model = make(**how)
    prepared = model.prepare(panel)
    params = random_values(len(name), prepared, how)
    for space in ("probability", "log"):
        hold_against_oracle(panel, how, model, prepared, params, *joint_of(panel, how, params), space)


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_sampler_sees_posterior_and_volume_and_their_gradient(name):
    """Potential energy is minus oracle's likelihood, scipy's priors and the volume of the coordinates."""
    panel, how, model, prepared, params, joint, node_w = solved(name)
    data = jax.tree.map(jnp.asarray, prepared.data)
    prior = log_prior_of(panel, how, params)
    found = model.log_prior(params, data)
    assert {k: float(v) for k, v in found.items()} == pytest.approx(prior, abs=1e-8)
    point, volume = coordinates_of(params, how)
    flat, back = ravel_pytree(unconstrain_fn(model, (data,), {}, point))
    energy = jax.jit(jax.value_and_grad(lambda x: potential_energy(model, (data,), {}, back(x))))
    value, gradient = energy(flat)
    density = total_of(panel, how, joint, node_w) + sum(prior.values())
    assert float(value) == pytest.approx(-(density + volume), abs=1e-8)
    step = 1e-4 * np.eye(len(flat))
    # The central difference of fourth order.
    numeric = [
        (8 * (energy(flat + s)[0] - energy(flat - s)[0]) - energy(flat + 2 * s)[0] + energy(flat - 2 * s)[0]) / 12e-4
        for s in step
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)
    # Every coordinate is a parameter that counts, and the start is a point of the posterior.
    assert model.n_parameters(data) == len(flat)
    start = unconstrain_fn(model, (data,), {}, model.initial(data))
    assert jax.tree.map(jnp.shape, start) == jax.tree.map(jnp.shape, back(flat))
    value, gradient = energy(ravel_pytree(start)[0])
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", STRUCTURES)
def test_evidence_of_a_family_is_that_of_its_votes_alone(name):
    panel, how, model, prepared, params, *_ = solved(name)
    prevalence, families = (np.asarray(x) for x in model.log_evidence(params, prepared.data))
    np.testing.assert_allclose(np.exp(prevalence)[prepared.pattern], prevalence_of(panel, params), atol=1e-12)
    given_state, node_w = oracle(panel, how, params)
    for f, family in enumerate(FAMILIES):
        for u, votes in enumerate(votes_of(panel)):
            alone = given_state(u, [(j, y) for j, y in votes if FAMILY[f"j{j}"] == family]) @ node_w
            np.testing.assert_allclose(families[f, prepared.pattern[u]], np.log(alone), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", STRUCTURES)
def test_sites_have_their_dims_in_one_order(name):
    _, _, model, prepared, *_ = solved(name)
    shapes, plates = {}, set()

    def run():
        for site in handlers.trace(handlers.seed(model, 1)).get_trace(prepared.data).values():
            if site["type"] in ("sample", "deterministic"):
                shapes[site["name"]] = jnp.shape(site["value"])
                plates.update((frame.name, frame.size) for frame in site.get("cond_indep_stack", []))

    jax.eval_shape(run)
    dims = list(prepared.dims.values())
    for site, names in prepared.dims.items():
        assert shapes[site] == tuple(len(prepared.coords[dim]) for dim in names), site
    assert set(prepared.coords) == {dim for names in (*dims, *prepared.effects.values()) for dim in names}
    assert all(prepared.coords[dim].name == dim for dim in prepared.coords)
    order = list(dict.fromkeys(dim for names in dims for dim in names))
    assert all([dim for dim in order if dim in names] == list(names) for names in dims)
    assert plates == {(dim, len(prepared.coords[dim])) for dim, _ in plates}


def test_families_stand_in_the_order_of_their_first_judges():
    prepared = make(family_reading=READ).prepare(small_panel())
    assert list(prepared.coords["judge_family"]) == FAMILIES
    votes = prepared.data.patterns.votes
    for group, family in zip(prepared.data.groups, FAMILIES, strict=True):
        assert [f"j{j}" for j in group.readers] == [j for j in FAMILY if FAMILY[j] == family]
        np.testing.assert_array_equal(group.votes[group.row], votes[:, group.readers])
        assert len(group.votes) == len(np.unique(group.votes, axis=0))


# ------------------------------------------------------------------ effects of participants

SHARED = ["participant", "participant-severity-judge-stratum", "participant-family-misreading",
          "participant-reading-state", "weight-participant"]  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_given_a_participants_effect_cells_are_independent(name):
    panel, _, model, prepared, params, joint, _ = solved(name)
    nodes = np.array(rule_nodes(GaussHermite(5), params["participant_sigma"])[0])
    for at in (np.array([0, 1, 2, 3]), np.array([4, 2, 0, 1])):
        given, here = {**params, "participant_effect": nodes[at]}, joint[np.arange(11), :, at[panel.participant]]
        found = np.asarray(model.log_likelihood(given, prepared.data))[prepared.pattern]
        np.testing.assert_allclose(found, np.log(here.sum(1)), atol=1e-10)
        found = np.asarray(model.state_probabilities(given, prepared.data))[prepared.pattern]
        np.testing.assert_allclose(found, here / here.sum(1, keepdims=True), atol=1e-10)


@pytest.mark.parametrize("name", SHARED)
def test_drawn_effects_have_their_posterior_and_average_to_the_states(name):
    panel, _, model, prepared, params, joint, node_w = solved(name)
    exact = node_posterior(panel, joint, node_w)
    exact /= exact.sum(1, keepdims=True)
    n, nodes = 20_000, np.array(rule_nodes(GaussHermite(5), params["participant_sigma"])[0])
    draw = jax.jit(jax.vmap(lambda key: model.draw_effects(key, params, prepared.data)["participant_effect"]))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), n)))
    at = np.abs(drawn[..., None] - nodes).argmin(-1)
    np.testing.assert_allclose(drawn, nodes[at], atol=1e-12)
    counts = np.stack([(at == h).sum(0) for h in range(5)], axis=1)
    for seen, p in zip(counts, exact, strict=True):
        rare = n * p < 5
        seen, p = np.append(seen[~rare], seen[rare].sum()), np.append(p[~rare], p[rare].sum())
        seen, p = (seen, p) if p[-1] * n >= 1 else (seen[:-1], p[:-1] / p[:-1].sum())
        assert stats.chisquare(seen, p * seen.sum()).pvalue > 1e-3
    # The states at each drawn effect, averaged over draws, are those with the effects summed out.
    by_node = np.stack(
        [model.state_probabilities({**params, "participant_effect": np.full(4, b)}, prepared.data) for b in nodes], -1
    )[prepared.pattern]
    share, p = counts[panel.participant] / n, exact[panel.participant]
    found = (by_node * share[:, None]).sum(-1)
    marginal = np.asarray(model.state_probabilities(params, prepared.data))[prepared.pattern]
    sd = np.sqrt(((by_node - marginal[..., None]) ** 2 * p[:, None]).sum(-1))
    assert np.all(np.abs(found - marginal) <= 4.5 * sd / np.sqrt(n) + 1e-12)
    assert sd.max() > 0.01


def test_most_structures_have_no_effects_to_draw():
    _, _, model, prepared, params, *_ = solved("family")
    assert prepared.effects == {}
    assert model.draw_effects(jax.random.key(0), params, prepared.data) == {}


# ------------------------------------------------------------------ special cases

SAME = dict.fromkeys(FAMILY, "z")
PLAIN = {"dependence": "none"}
EYE = np.eye(3)
# The larger structure, the smaller one, values at which they are one, and the families of the judges.
SPECIAL = {
    "no cell effect": ({}, PLAIN, {"sigma": 1e-9}, FAMILY),
    "no severity": ({"dependence": "severity"}, PLAIN, {"sigma": 1e-9}, FAMILY),
    "no loading of any judge": ({"loading": "judge"}, PLAIN, {"sigma": np.zeros(6)}, FAMILY),
    "no family effect": ({"family_effect": HALF}, {}, {"family_sigma": 1e-9}, FAMILY),
    "no effect of one-judge families": ({"family_effect": HALF}, {}, {"family_sigma": 1e-9}, {j: j for j in FAMILY}),
    "one faultless family": ({"family_reading": READ, **PLAIN}, PLAIN, {"family_reading": EYE[:, None]}, SAME),
    "faultless families": ({"family_reading": READ, **PLAIN}, PLAIN, {"family_reading": EYE[:, None].repeat(3, 1)},
                           FAMILY),
    "no misreading": ({"misreading": READ}, {}, {"misreading": EYE}, FAMILY),
    "no misreading of families": ({"misreading": READ, "family_reading": READ}, {"family_reading": READ},
                                  {"misreading": EYE}, FAMILY),
    "equal loadings of states": ({"loading": "state"}, {}, {"sigma": np.full(3, 0.7)}, FAMILY),
    "equal loadings of judges": ({"loading": "judge"}, {}, {"sigma": np.full(6, 0.7)}, FAMILY),
    "no participant effect": ({"participant_effect": HALF}, {}, {"participant_sigma": 1e-9}, FAMILY),
    "whole weight": ({"unlabelled_weight": 1.0}, {}, {}, FAMILY),
    "equal strata": ({"stratum": "source"}, {}, {"emission": None}, FAMILY),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_cases_are_equal(name):
    larger, smaller, values, family = SPECIAL[name]
    panel = small_panel()
    kept = [family.get(judge, "a") for judge in panel.judges.index]
    panel = replace(panel, judges=panel.judges.assign(judge_family=kept))
    large, small = make(**larger), make(**smaller)
    ours, theirs = large.prepare(panel), small.prepare(panel)
    params = random_values(3, ours, larger)
    reduced = {k: v for k, v in params.items() if k in theirs.dims}
    if "emission" in values:
        reduced["emission"] = params["emission"][0]
        values = {"emission": np.stack([reduced["emission"]] * 2)}
    if "loading" in larger and smaller == {}:
        reduced["sigma"] = 0.7
    params = params | {k: np.asarray(v) for k, v in values.items()}
    for method in ("total_log_likelihood", "log_likelihood", "state_probabilities"):
        found, expected = getattr(large, method)(params, ours.data), getattr(small, method)(reduced, theirs.data)
        if method != "total_log_likelihood":
            found, expected = found[ours.pattern], expected[theirs.pattern]
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_family_effect_of_one_judge_families_is_an_effect_of_each_judge():
    """Given state and cell effect, the only vote of a family has its emission averaged over the family's effect."""
    panel = small_panel()
    panel = replace(panel, judges=panel.judges.assign(judge_family=panel.judges.index))
    model, b, params = make(family_effect=HALF), 0.0, None
    prepared = model.prepare(panel)
    params = {**random_values(3, prepared, {}), "sigma": np.asarray(1e-9)}
    nodes, weights = rule_nodes(GaussHermite(5), params["family_sigma"])
    e = params["emission"]
    odds = e[..., None, :] * np.exp(b + np.array(nodes)[:, None] * np.eye(4)[panel.codebook.reading][:, None])
    averaged = np.einsum("h,jkhy->jky", weights, odds / odds.sum(-1, keepdims=True))
    plain = make(dependence="none")
    expected = plain.total_log_likelihood(
        {k: v for k, v in params.items() if "sigma" not in k} | {"emission": averaged}, plain.prepare(panel).data
    )
    assert float(model.total_log_likelihood(params, prepared.data)) == pytest.approx(float(expected), abs=1e-9)


def test_when_everything_is_known_the_likelihood_is_a_product_of_emissions():
    panel = small_panel()
    known = np.arange(11) % 3
    panel = replace(panel, known=known, constructed=np.arange(11) < 6)
    model = make(dependence="none", prevalence_formula="~ 1")
    prepared = model.prepare(panel)
    params = random_values(4, prepared, {})
    k, j, y = known[panel.vote_cell], panel.vote_judge, panel.vote_category
    expected = np.log(params["emission"][j, k, y]).sum() + np.log(params["prevalence"][known[6:]]).sum()
    assert float(model.total_log_likelihood(params, prepared.data)) == pytest.approx(expected, abs=1e-10)
    found = np.asarray(model.state_probabilities(params, prepared.data))[prepared.pattern]
    np.testing.assert_array_equal(found, np.eye(3)[known])


@pytest.mark.parametrize("layer", ["family_effect", "participant_effect", None])
def test_probit_severity_has_its_closed_form_margin(layer):
    """P(Y = 1 | k) = Φ(a / √(1 + variance of all effects)): Qu, Tan & Kutner (1996)."""
    panel = small_panel("two")
    first = np.unique(panel.vote_cell, return_index=True)[1]
    panel = replace(panel, vote_cell=panel.vote_cell[first], vote_judge=panel.vote_judge[first],
                    vote_category=panel.vote_category[first], known=np.full(11, -1),
                    constructed=np.zeros(11, bool))  # fmt: skip
    how = {"link": "probit", "dependence": "severity", "loading": "judge", "emission": NormalPredictor()}
    model = make(**how, **({layer: HALF} if layer else {}), quadrature=GaussHermite(40), prevalence_formula="~ 1")
    prepared = model.prepare(panel)
    params = random_values(5, prepared, how)
    variance = params["sigma"] ** 2 + (params[layer.replace("effect", "sigma")] ** 2 if layer else 0.0)
    a = stats.norm.ppf(params["emission"][..., 1])
    margin = stats.norm.cdf(a / np.sqrt(1 + variance)[:, None])[panel.vote_judge]
    margin = np.where(panel.vote_category[:, None] == 1, margin, 1 - margin)
    found = np.exp(np.asarray(model.log_likelihood(params, prepared.data)))[prepared.pattern][panel.vote_cell]
    np.testing.assert_allclose(found, margin @ params["prevalence"], rtol=1e-9)


def test_nested_quadrature_stands_for_the_double_integral():
    """A trapezoid over a dense grid in both effects, which for these integrands converges geometrically."""
    panel, how = small_panel(), {"family_effect": HALF, "quadrature": GaussHermite(25)}
    model = make(**how)
    prepared = model.prepare(panel)
    params = {**random_values(6, prepared, how), "sigma": np.asarray(0.8), "family_sigma": np.asarray(0.6)}
    found = np.exp(np.asarray(model.log_likelihood(params, prepared.data)))[prepared.pattern]
    grid = np.linspace(-9, 9, 401)
    density, prevalence, votes = stats.norm.pdf(grid), prevalence_of(panel, params), votes_of(panel)
    for u in np.flatnonzero((panel.known < 0) & (panel.n_votes > 3)):
        total = 0.0
        for k in range(3):
            h = np.eye(4)[panel.codebook.reading[k]]
            at_b = density.copy()
            for family in FAMILIES:
                odds = np.exp((0.8 * grid[:, None] + 0.6 * grid)[..., None] * h)
                inner = density * np.ones_like(odds[..., 0])
                for j, y in votes[u]:
                    if FAMILY[f"j{j}"] == family:
                        e = params["emission"][j, k]
                        inner = inner * e[y] * odds[..., y] / (odds @ e)
                at_b = at_b * integrate.trapezoid(inner, grid, axis=1)
            total += prevalence[u, k] * integrate.trapezoid(at_b, grid)
        assert found[u] == pytest.approx(total, rel=1e-6)


def test_signed_loadings_are_reported_with_a_positive_mean():
    model = make(loading="judge", sigma=SIGNED, participant_effect=HALF, family_effect=HALF)
    prepared = model.prepare(small_panel())
    value = np.array([-1.0, 0.2, -0.5, 0.1, 0.4, 0.3])
    fixed = random_values(7, prepared, {})
    traces = []
    for sign in (1, -1):
        point, _ = coordinates_of(fixed, {})
        seeded = handlers.seed(handlers.substitute(model, point | {"sigma_signed": sign * value}), 1)
        traces.append(handlers.trace(seeded).get_trace(prepared.data))
    for trace in traces:
        np.testing.assert_array_equal(trace["sigma"]["value"], -value)
    assert float(traces[0]["votes"]["fn"].log_factor) == pytest.approx(float(traces[1]["votes"]["fn"].log_factor))
    # The likelihood is that of both, whatever way round other effects are.
    both = [model.total_log_likelihood({**fixed, "sigma": s * value}, prepared.data) for s in (1, -1)]
    assert float(both[0]) == pytest.approx(float(both[1]), abs=1e-10)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, 24 * 3 // 4 * 3 + 2 + 2 + 1),
        ({"dependence": "none"}, 54 + 4),
        ({"prevalence_formula": "~ 1"}, 54 + 2 + 1),
        ({"loading": "judge"}, 54 + 4 + 6),
        ({"loading": "state"}, 54 + 4 + 3),
        ({"misreading": READ}, 54 + 4 + 1 + 3 * 2),
        ({"family_reading": READ}, 54 + 4 + 1 + 3 * 3 * 2),
        ({"family_effect": HALF, "participant_effect": HALF}, 54 + 4 + 3),
        ({"stratum": "source"}, 2 * 54 + 4 + 1),
    ],
    ids=str,
)
def test_parameters_are_counted(how, expected):
    """Six judges, three states, four categories, one covariate: 6 · 3 · 3 + 2 + 2, and the effects."""
    model = make(**how)
    assert model.n_parameters(model.prepare(small_panel()).data) == expected


def test_three_binary_judges_have_eight_parameters(make_panel):
    model = make(dependence="severity", prevalence_formula="~ 1")
    assert model.n_parameters(model.prepare(make_panel(36, n_states=2)).data) == 3 * 2 + 1 + 1


@pytest.mark.parametrize(
    "how",
    [{"family_effect": HALF}, {"family_reading": READ}, {"family_effect": HALF, "participant_effect": HALF}],
    ids="-".join,
)
def test_cost_is_linear_in_families(make_panel, how):
    """Twice the families of two judges each take no more than twice the operations."""
    flops = []
    for n_families in (2, 4, 8):
        panel = make_panel(35, n_cells=60, n_judges=2 * n_families)
        panel = replace(panel, judges=panel.judges.assign(judge_family=[f"f{i // 2}" for i in range(2 * n_families)]))
        model = make(**how)
        prepared = model.prepare(panel)
        data = jax.tree.map(jnp.asarray, replace(prepared.data, space="log"))
        params = {k: jnp.asarray(v) for k, v in random_values(8, prepared, how).items()}
        flops.append(jax.jit(model.total_log_likelihood).lower(params, data).compile().cost_analysis()["flops"])
    assert flops[1] < 2.2 * flops[0]
    assert flops[2] < 2.2 * flops[1]


# ------------------------------------------------------------------ what cannot be


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"dependence": "clear"}, r"model\.dependence: 'clear' is unknown.*Allowed: none, clarity, severity\."),
        ({"loading": "judges"}, r"model\.loading: 'judges' .*Did you mean 'judge'\? Allowed: shared, state, judge\."),
        ({"link": "cauchit"}, r"model\.link: 'cauchit' is unknown.* Allowed: logit, probit\."),
        ({**PLAIN, "loading": "judge"}, r"model\.loading: 'judge' needs a cell effect: dependence clarity or severity"),
        ({**PLAIN, "loading": "state"}, r"model\.loading: 'state' needs a cell effect: dependence clarity or severity"),
        ({**PLAIN, "family_effect": HALF}, r"model\.family_effect needs .*: dependence clarity or severity\."),
        ({**PLAIN, "participant_effect": HALF}, r"model\.participant_effect needs .*: dependence clarity or severity"),
        (
            {"family_effect": HALF, "family_reading": READ},
            r"model\.family_effect and .* exclude .* one of them is null",
        ),
        ({"loading": "judge", "family_reading": READ}, r"model\.loading: 'judge' has no place with family_reading"),
        ({"unlabelled_weight": 1.5}, r"model\.unlabelled_weight: 1\.5 is not usable; allowed: 0 to 1"),
        ({"unlabelled_weight": -1}, r"model\.unlabelled_weight: -1 is not usable; allowed: 0 to 1"),
        ({"unlabelled_weight": float("nan")}, r"model\.unlabelled_weight: nan is not usable; allowed: 0 to 1"),
    ],
)
def test_options_that_exclude_each_other_are_refused_at_once(how, message):
    with pytest.raises(InputError, match=message):
        make(**how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"link": "probit"}, r"model\.link: probit is for two categories; codebook 'three' has 4"),
        ({"emission": NormalPredictor()}, r"model\.emission: NormalPredictor is for two categories; .* has 4"),
        (
            {"stratum": "sorce"},
            r"model\.stratum names 'sorce'.* Did you mean 'source'\? Columns: participant_id, source",
        ),
        ({"prevalence_formula": "~ sorce"}, r"prevalence_formula .* 'sorce'.* Did you mean 'source'\? Columns: "),
    ],
)
def test_options_that_do_not_fit_the_panel_are_refused(how, message):
    with pytest.raises(InputError, match=message):
        make(**how).prepare(small_panel())


def test_a_stratum_needs_a_value_for_every_cell():
    panel = small_panel()
    panel = replace(panel, cells=panel.cells.assign(source=panel.cells["source"].where(panel.cells.index != "u03")))
    with pytest.raises(InputError, match=r"model\.stratum: 'source' is empty for 1 cells, the first is 'u03'"):
        make(stratum="source", prevalence_formula="~ 1").prepare(panel)


def test_new_priors_do_not_recompile():
    """Priors and the weight are traced data, switches are static."""
    panel, traces = small_panel(), []
    data = jax.tree.map(jnp.asarray, make().prepare(panel).data)

    @jax.jit
    def total(model, params):
        traces.append(model)
        return model.total_log_likelihood(params, data) + sum(model.log_prior(params, data).values())

    params = random_values(9, make(misreading=READ).prepare(panel), {})
    for weight, right in ((1.0, 0.8), (0.5, 0.9), (0.0, 0.95)):
        total(make(unlabelled_weight=weight, misreading=Misreading(right), sigma=dist.HalfNormal(2 * right)), params)
    assert len(traces) == 1
    total(make(misreading=READ, dependence="severity"), params)
    assert len(traces) == 2
