"""Every structure of RE-LCA against sums over all its hidden values in plain loops, which share no code with it."""

import math
from dataclasses import replace
from functools import cache, partial
from itertools import product
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import potential_energy
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
    """A function from a cell and votes to their probability ``[state, participant node]``, and weights of the nodes."""
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


def unconstrained(point):
    """Coordinates of the sampler: log-ratios and signed loadings as they are, the others by NumPyro's bijections."""
    moved = {name: np.log(value) for name, value in point.items() if name.endswith("sigma")}
    if "slope_by_effect" in point:
        value = jnp.asarray(point["slope_by_effect"])
        moved["slope_by_effect"] = biject_to(dist.ZeroSumNormal(1.0, value.shape[-1:]).support).inv(value)
    return {**{name: jnp.asarray(value) for name, value in point.items()}, **moved}


# ------------------------------------------------------------------ the structures

READING, SEVERITY = {"family_reading": READ}, {"dependence": "severity"}
PARTICIPANT, FAMILIAL, STRATA = {"participant_effect": HALF}, {"family_effect": HALF}, {"stratum": "source"}
MISREADING, PLAIN = {"misreading": READ}, {"dependence": "none"}
BY_STATE, BY_JUDGE, PROBIT = {"loading": "state"}, {"loading": "judge"}, {"link": "probit"}
ANCHORED = {"emission": AnchoredDirichlet(0.5, 3.0, 1.0)}
# Every option meets the others here; what is not among the quick ones, and all that there can be, are slow tests.
STRUCTURES = {
    "none": PLAIN,
    "clarity": {},
    "clarity-state": BY_STATE,
    "clarity-judge": BY_JUDGE,
    "severity": SEVERITY,
    "severity-state": SEVERITY | BY_STATE,
    "severity-judge-grid": SEVERITY | BY_JUDGE | {"quadrature": PaperGrid()},
    "clarity-grid": {"quadrature": PaperGrid()},
    "family": FAMILIAL,
    "family-severity-judge-stratum": FAMILIAL | SEVERITY | BY_JUDGE | STRATA,
    "family-state-misreading": FAMILIAL | BY_STATE | MISREADING,
    "reading-none": READING | PLAIN,
    "reading-clarity": READING,
    "reading-clarity-state-misreading": READING | BY_STATE | MISREADING,
    "reading-severity-state-stratum": READING | SEVERITY | BY_STATE | STRATA,
    "reading-severity-participant": READING | SEVERITY | PARTICIPANT,
    "reading-none-misreading-stratum": READING | PLAIN | MISREADING | STRATA,
    "misreading-none": MISREADING | PLAIN,
    "misreading-severity-judge": MISREADING | SEVERITY | BY_JUDGE,
    "stratum-none": STRATA | PLAIN,
    "stratum-judge": STRATA | BY_JUDGE,
    "participant": PARTICIPANT,
    "participant-state-stratum": PARTICIPANT | BY_STATE | STRATA,
    "participant-family-severity-judge-misreading": PARTICIPANT | FAMILIAL | SEVERITY | BY_JUDGE | MISREADING,
    "signed-judge": BY_JUDGE | {"sigma": SIGNED},
    "signed-severity-family": SEVERITY | FAMILIAL | {"sigma": SIGNED},
    "weight": {"unlabelled_weight": 0.3},
    "weight-participant-none-of-it": {"unlabelled_weight": 0.0} | PARTICIPANT,
    "weight-participant": {"unlabelled_weight": 0.3} | PARTICIPANT,
    "anchored": ANCHORED,
    "anchored-stratum-weight": ANCHORED | STRATA | {"unlabelled_weight": 0.3},
    "two-probit-clarity": PROBIT,
    "two-probit-clarity-judge": PROBIT | BY_JUDGE,
    "two-probit-severity": PROBIT | SEVERITY,
    "two-probit-severity-state-stratum": PROBIT | SEVERITY | BY_STATE | STRATA,
    "two-probit-severity-family-participant": PROBIT | SEVERITY | FAMILIAL | PARTICIPANT,
    "two-probit-state-misreading": PROBIT | BY_STATE | MISREADING,
    "two-logit-severity-judge": SEVERITY | BY_JUDGE,
    "replicates-family-judge": FAMILIAL | BY_JUDGE,
    "replicates-reading-participant": READING | PARTICIPANT,
}


QUICK = {
    "none",
    "clarity-judge",
    "severity-judge-grid",
    "family-severity-judge-stratum",
    "reading-clarity-state-misreading",
    "reading-severity-participant",
    "participant-state-stratum",
    "participant-family-severity-judge-misreading",
    "signed-judge",
    "weight-participant",
    "anchored-stratum-weight",
    "two-probit-clarity-judge",
    "two-probit-severity",
    "replicates-family-judge",
}
EACH = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STRUCTURES]


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


def quick(function):
    """Compile without optimising: what is run a few times pays for its compilation alone."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def hold_against_oracle(panel, how, model, prepared, params, joint, node_w, space):
    """Likelihood, states and evidence of families, in one space, are those of the oracle to 1e-10."""
    data = jax.tree.map(jnp.asarray, replace(prepared.data, space=space))
    methods = (model.total_log_likelihood, model.log_likelihood, model.state_probabilities, model.log_evidence)
    found = quick(lambda params, data: [method(params, data) for method in methods])(params, data)
    total, cells, states, (prevalence, families) = jax.tree.map(np.asarray, found)
    close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)
    close(total, total_of(panel, how, joint, node_w))
    close(cells[prepared.pattern], np.log(joint.sum(1) @ node_w))
    # All votes of a participant say what its effect is.
    node = node_posterior(panel, joint, node_w)[panel.participant] if "participant_effect" in how else np.ones((11, 1))
    expected = joint / joint.sum(1, keepdims=True) * (node / node.sum(1, keepdims=True))[:, None]
    close(states[prepared.pattern], expected.sum(-1))
    close(np.exp(prevalence)[prepared.pattern], prevalence_of(panel, params))
    given_state, _ = oracle(panel, how, params)
    for f, family in enumerate(FAMILIES):
        for u, votes in enumerate(votes_of(panel)):
            alone = given_state(u, [(j, y) for j, y in votes if FAMILY[f"j{j}"] == family]) @ node_w
            close(families[f, prepared.pattern[u]], np.log(alone))


@pytest.mark.parametrize("name", EACH)
def test_likelihood_and_states_equal_enumeration(name):
    """In the space that is not the structure's own, which the next test takes."""
    space = "log" if "replicates" in name or solved(name)[3].data.space == "probability" else "probability"
    hold_against_oracle(*solved(name), space)


@pytest.mark.slow
@pytest.mark.parametrize("name", everything())
def test_all_structures_equal_enumeration(name):
    how, panel = everything()[name], small_panel("two" if "probit" in name else "three", seed=11)
    model = make(**how)
    prepared = model.prepare(panel)
    params = random_values(len(name), prepared, how)
    space = ("probability", "log")[list(everything()).index(name) % 2]
    hold_against_oracle(panel, how, model, prepared, params, *joint_of(panel, how, params), space)


@pytest.mark.parametrize("name", EACH)
def test_the_sampler_sees_likelihood_prior_and_volume_and_their_gradient(name):
    """Potential energy is minus oracle's likelihood, scipy's priors and the volume of the coordinates."""
    panel, how, model, prepared, params, joint, node_w = solved(name)
    data = jax.tree.map(jnp.asarray, prepared.data)
    prior = log_prior_of(panel, how, params)
    found = model.log_prior(params, data)
    assert {k: float(v) for k, v in found.items()} == pytest.approx(prior, abs=1e-8)
    point, volume = coordinates_of(params, how)
    flat, back = ravel_pytree(unconstrained(point))
    compiled = quick(jax.value_and_grad(lambda x, data: potential_energy(model, (data,), {}, back(x))))

    def energy(x):
        return [np.asarray(value) for value in compiled(x, data)]

    value, gradient = energy(flat)
    density = total_of(panel, how, joint, node_w) + sum(prior.values())
    assert float(value) == pytest.approx(-(density + volume), abs=1e-8)
    # Central differences of fourth order.
    numeric = [
        (8 * (energy(x + s)[0] - energy(x - s)[0]) - energy(x + 2 * s)[0] + energy(x - 2 * s)[0]) / 12e-4
        for x, s in ((np.asarray(flat), s) for s in 1e-4 * np.eye(len(flat)))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)
    # Every coordinate is a parameter that counts, and the start is a point of the posterior.
    assert model.n_parameters(data) == len(flat)
    start = unconstrained(model.initial(data))
    assert jax.tree.map(jnp.shape, start) == jax.tree.map(jnp.shape, back(flat))
    assert all(np.isfinite(value).all() for value in energy(ravel_pytree(start)[0]))


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


@pytest.mark.parametrize(
    "name",
    [
        "participant",
        "weight-participant",
        pytest.param("participant-family-severity-judge-misreading", marks=pytest.mark.slow),
    ],
)
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
        often = n * p >= 5
        # What is rare is one class, which no draw may leave far behind.
        assert seen[~often].sum() < 40
        assert stats.chisquare(seen[often], p[often] / p[often].sum() * seen[often].sum()).pvalue > 1e-3
    # Given effects, cells are independent; participants may have different ones.
    given = quick(lambda b: [
        method({**params, "participant_effect": b}, prepared.data)
        for method in (model.log_likelihood, model.state_probabilities)
    ])  # fmt: skip
    for mixed in (np.array([0, 1, 2, 3]), np.array([4, 2, 0, 1])):
        here = joint[np.arange(11), :, mixed[panel.participant]]
        cells, states = (np.asarray(x)[prepared.pattern] for x in given(nodes[mixed]))
        np.testing.assert_allclose(cells, np.log(here.sum(1)), rtol=0, atol=1e-10)
        np.testing.assert_allclose(states, here / here.sum(1, keepdims=True), rtol=0, atol=1e-10)
    # The states at each drawn effect, averaged over draws, are those with the effects summed out.
    by_node = np.stack([given(np.full(4, b))[1] for b in nodes], -1)[prepared.pattern]
    share, p = counts[panel.participant] / n, exact[panel.participant]
    marginal = np.asarray(quick(model.state_probabilities)(params, prepared.data))[prepared.pattern]
    sd = np.sqrt(((by_node - marginal[..., None]) ** 2 * p[:, None]).sum(-1))
    assert np.all(np.abs((by_node * share[:, None]).sum(-1) - marginal) <= 4.5 * sd / np.sqrt(n) + 1e-12)
    assert sd.max() > 0.01


def test_most_structures_have_no_effects_to_draw():
    _, _, model, prepared, params, *_ = solved("family")
    assert prepared.effects == {}
    assert model.draw_effects(jax.random.key(0), params, prepared.data) == {}


# ------------------------------------------------------------------ special cases

SAME, ALONE = dict.fromkeys(FAMILY, "z"), {judge: judge for judge in FAMILY}
EYE = np.eye(3)
# The larger structure, the smaller one, values at which they are one, and the families of the judges.
SPECIAL = {
    "no clarity": ({}, PLAIN, {"sigma": 1e-9}, FAMILY),
    "no severity": (SEVERITY, PLAIN, {"sigma": 1e-9}, FAMILY),
    "no loading of any judge": (BY_JUDGE, PLAIN, {"sigma": np.zeros(6)}, FAMILY),
    "no family effect": (FAMILIAL, {}, {"family_sigma": 1e-9}, FAMILY),
    "no effect of one-judge families": (FAMILIAL, {}, {"family_sigma": 1e-9}, ALONE),
    "one faultless family": (READING | PLAIN, PLAIN, {"family_reading": EYE[:, None]}, SAME),
    "faultless families": (READING | PLAIN, PLAIN, {"family_reading": EYE[:, None].repeat(3, 1)}, FAMILY),
    "one family misreads as the panel": (READING | PLAIN, MISREADING | PLAIN, {"family_reading": None}, SAME),
    "no misreading": (MISREADING, {}, {"misreading": EYE}, FAMILY),
    "no misreading of families": (MISREADING | READING, READING, {"misreading": EYE}, FAMILY),
    "equal loadings of states": (BY_STATE, {}, {"sigma": np.full(3, 0.7)}, FAMILY),
    "equal loadings of judges": (BY_JUDGE, {}, {"sigma": np.full(6, 0.7)}, FAMILY),
    "no participant effect": (PARTICIPANT, {}, {"participant_sigma": 1e-9}, FAMILY),
    "whole weight": ({"unlabelled_weight": 1.0}, {}, {}, FAMILY),
    "equal strata": (STRATA, {}, {"emission": None}, FAMILY),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_cases_are_equal(name):
    """The larger structure against the oracle of the smaller one."""
    larger, smaller, values, family = SPECIAL[name]
    panel = small_panel()
    kept = [family.get(judge, "a") for judge in panel.judges.index]
    panel = replace(panel, judges=panel.judges.assign(judge_family=kept))
    model = make(**larger)
    prepared = model.prepare(panel)
    params = random_values(3, prepared, larger)
    reduced = dict(params)
    if "loading" in larger:
        reduced["sigma"] = 0.7
    if name == "equal strata":
        reduced["emission"] = params["emission"][0]
        values = {"emission": np.stack([reduced["emission"]] * 2)}
    if "as the panel" in name:
        reduced["misreading"] = params["family_reading"][:, 0]
        values = {}
    params = params | {k: np.asarray(v) for k, v in values.items()}
    joint, node_w = joint_of(panel, smaller, reduced)
    methods = (model.total_log_likelihood, model.state_probabilities)
    total, states = quick(lambda p, data: [method(p, data) for method in methods])(params, prepared.data)
    np.testing.assert_allclose(total, total_of(panel, smaller, joint, node_w), atol=1e-7)
    expected = joint[..., 0] / joint[..., 0].sum(1, keepdims=True)
    np.testing.assert_allclose(states[prepared.pattern], expected, atol=1e-7)


def test_a_family_effect_of_one_judge_families_is_an_effect_of_each_judge():
    """Given state and cell effect, the only vote of a family has its emission averaged over the family's effect."""
    panel = small_panel()
    panel = replace(panel, judges=panel.judges.assign(judge_family=panel.judges.index))
    model = make(family_effect=HALF)
    prepared = model.prepare(panel)
    params = {**random_values(3, prepared, {}), "sigma": np.asarray(1e-9)}
    nodes, weights = rule_nodes(GaussHermite(5), params["family_sigma"])
    e = params["emission"]
    odds = e[..., None, :] * np.exp(np.array(nodes)[:, None] * np.eye(4)[panel.codebook.reading][:, None])
    averaged = np.einsum("h,jkhy->jky", weights, odds / odds.sum(-1, keepdims=True))
    expected = total_of(panel, PLAIN, *joint_of(panel, PLAIN, params | {"emission": averaged}))
    assert float(quick(model.total_log_likelihood)(params, prepared.data)) == pytest.approx(expected, abs=1e-9)


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


@pytest.mark.parametrize("layer", ["family_effect", None])
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
    cells = quick(model.log_likelihood)(params, prepared.data)
    found = np.exp(np.asarray(cells))[prepared.pattern][panel.vote_cell]
    np.testing.assert_allclose(found, margin @ params["prevalence"], rtol=1e-9)


def test_nested_quadrature_stands_for_the_double_integral():
    """A trapezoid over a dense grid in both effects, which for these integrands converges geometrically."""
    panel, how = small_panel(), {"family_effect": HALF, "quadrature": GaussHermite(25)}
    model = make(**how)
    prepared = model.prepare(panel)
    params = {**random_values(6, prepared, how), "sigma": np.asarray(0.8), "family_sigma": np.asarray(0.6)}
    found = np.exp(np.asarray(quick(model.log_likelihood)(params, prepared.data)))[prepared.pattern]
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


@pytest.mark.parametrize("prior", [dist.Uniform(0.6, 0.8), dist.TruncatedNormal(0.0, 1.0, low=1.0)])
def test_loadings_start_where_their_prior_allows(prior):
    model = make(loading="judge", sigma=prior, family_effect=prior)
    start = model.initial(model.prepare(small_panel()).data)
    assert start["sigma"].shape == (6,)
    assert prior.support(start["sigma"]).all()
    assert prior.support(start["family_sigma"])


def test_signed_loadings_are_reported_with_a_positive_mean():
    model = make(loading="judge", sigma=SIGNED, participant_effect=HALF, family_effect=HALF)
    prepared = model.prepare(small_panel())
    value = np.array([-1.0, 0.2, -0.5, 0.1, 0.4, 0.3])
    fixed = random_values(7, prepared, {})
    point, _ = coordinates_of({k: v for k, v in fixed.items() if k != "sigma"}, {})

    @quick
    def run(signed):
        seeded = handlers.seed(handlers.substitute(model, point | {"sigma_signed": signed}), 1)
        trace = handlers.trace(seeded).get_trace(prepared.data)
        given = model.total_log_likelihood({**fixed, "sigma": signed}, prepared.data)
        return trace["sigma"]["value"], trace["votes"]["fn"].log_factor, given

    found = [run(sign * value) for sign in (1, -1)]
    for reported, factor, given in found:
        np.testing.assert_array_equal(reported, -value)
        # The likelihood is that of both, whatever way round other effects are.
        np.testing.assert_allclose([factor, given], found[0][1], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, 54 + 4 + 1),
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


@pytest.mark.parametrize("how", [FAMILIAL, READING], ids="-".join)
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
        flops.append(quick(model.total_log_likelihood).lower(params, data).compile().cost_analysis()["flops"])
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
