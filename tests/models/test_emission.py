"""Priors of the emissions: what they are made of, their densities against scipy, and where they start."""

from dataclasses import replace
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import special, stats
from scipy.linalg import helmert

from evidial_bayes.data.errors import InputError
from evidial_bayes.models.emission.accuracy import ClassConditional, OneCoin
from evidial_bayes.models.emission.base import Rows, log_emission_of, predictor_of
from evidial_bayes.models.emission.dirichlet import AnchoredDirichlet, DiagonalDirichlet
from evidial_bayes.models.emission.pooled import PooledRows
from evidial_bayes.models.emission.predictor import NormalPredictor

JUDGES = (("judge", 2),)
STRATA = (("stratum", 3), *JUDGES)


def rows_of(reading, n_categories, *, lead=JUDGES, link="logit", seed=0):
    """Rows of judges with some votes, of which some are on anchors."""
    shape = (*(size for _, size in lead), len(reading), n_categories)
    votes = np.random.default_rng(seed).poisson(2.0, size=(2, *shape)).astype(float)
    return Rows(np.eye(n_categories)[list(reading)], lead, votes[0], link, votes.sum(0))


# Three states and four categories in another order; two states that read as one category; two categories.
THREE, ALIKE, TWO = rows_of([1, 0, 3], 4), rows_of([2, 0, 0, 1], 3, lead=STRATA), rows_of([1, 0], 2)
PROBIT = replace(TWO, link="probit")
CASES = {
    "diagonal": (DiagonalDirichlet(5.0, 2.0), THREE),
    "diagonal-strata": (DiagonalDirichlet(), ALIKE),
    "anchored": (AnchoredDirichlet(0.5, 3.0, 2.0), THREE),
    "coin": (OneCoin(6.0, 3.0), THREE),
    "coin-strata": (OneCoin(), ALIKE),
    "accuracies": (ClassConditional(6.0, 3.0), THREE),
    "accuracies-strata": (ClassConditional(), ALIKE),
    "pooled": (PooledRows(5.0, 2.0, dist.HalfNormal(0.7)), THREE),
    "pooled-strata": (PooledRows(spread=dist.LogNormal(-1.0, 0.5)), ALIKE),
    "predictor-logit": (NormalPredictor(1.5), TWO),
    "predictor-probit": (NormalPredictor(), PROBIT),
}  # fmt: skip


def quick(function):
    """Compile without optimising: what is run a few times pays for its compilation alone."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def program(prior, rows):
    """The prior alone as a NumPyro program."""
    return lambda: prior.sample(rows)


@cache
def traced(name):
    """What the program draws, by sample site, what it reports, and the sizes of its plates."""
    prior, rows = CASES[name]
    plates = set()

    def run(key):
        def inside():
            log_emission, others = prior.sample(rows)
            found.update({"emission": jnp.exp(log_emission), **others})

        found = {}
        trace = handlers.trace(handlers.seed(inside, key)).get_trace()
        drawn = {n: site["value"] for n, site in trace.items() if site["type"] == "sample"}
        plates.update((f.name, f.size) for site in trace.values() for f in site.get("cond_indep_stack", []))
        return drawn, found

    values = quick(run)(jax.random.key(1))
    return *jax.tree.map(np.asarray, values), plates


def simplex(x):
    """Probabilities of isometric log-ratio coordinates."""
    odds = np.exp(x @ helmert(x.shape[-1] + 1))
    return odds / odds.sum(-1, keepdims=True)


def emissions_by_hand(prior, rows, drawn):
    reads, (n_states, n_categories) = np.asarray(rows.reads), np.shape(rows.reads)
    if isinstance(prior, DiagonalDirichlet | AnchoredDirichlet):
        return simplex(drawn["emission_log_ratio"])
    if isinstance(prior, PooledRows):
        return simplex(drawn["population_log_ratio"] + drawn["spread"] * drawn["emission_deviation"])
    if isinstance(prior, NormalPredictor):
        cdf = stats.norm.cdf if rows.link == "probit" else special.expit
        return np.stack([cdf(-drawn["predictor"]), cdf(drawn["predictor"])], axis=-1)
    lead = tuple(size for _, size in rows.lead)
    found = np.zeros((*lead, n_states, n_categories))
    for at in product(*map(range, found.shape)):
        accuracy = drawn["accuracy"][at[:-2] if isinstance(prior, OneCoin) else at[:-1]]
        found[at] = accuracy if reads[at[-2:]] else (1 - accuracy) / (n_categories - 1)
    return found


@pytest.mark.parametrize("name", CASES)
def test_emissions_are_made_of_what_is_drawn(name):
    prior, rows = CASES[name]
    drawn, found, _ = traced(name)
    np.testing.assert_allclose(found["emission"], emissions_by_hand(prior, rows, drawn), rtol=1e-9, atol=1e-14)
    assert found["emission"].shape == (*rows.shape, rows.n_categories)
    np.testing.assert_allclose(found["emission"].sum(-1), 1.0)


@pytest.mark.parametrize("name", CASES)
def test_sites_have_the_shapes_of_their_dims_and_plates(name):
    prior, rows = CASES[name]
    drawn, found, plates = traced(name)
    sizes = {**dict(rows.lead), "state": rows.n_states, "category": rows.n_categories}
    dims = prior.dims(rows)
    assert {"emission", *dims} == set(found)
    for site, names in dims.items():
        assert found[site].shape == tuple(sizes[dim] for dim in names), site
    assert plates == {(dim, sizes[dim]) for dim, _ in plates}
    start = prior.initial(rows)
    assert {site: np.shape(value) for site, value in start.items()} == {k: v.shape for k, v in drawn.items()}


def log_prior_by_hand(prior, rows, found):
    """Log densities with scipy on the scale of the sites."""
    reads, anchors, e = np.asarray(rows.reads), np.asarray(rows.anchors), found["emission"]

    def dirichlet(values, alpha):
        alpha = np.broadcast_to(alpha, values.shape)
        return sum(stats.dirichlet.logpdf(values[at], alpha[at]) for at in np.ndindex(values.shape[:-1]))

    if isinstance(prior, DiagonalDirichlet):
        return {"emission": dirichlet(e, np.where(reads > 0, prior.diagonal, prior.off_diagonal))}
    if isinstance(prior, AnchoredDirichlet):
        alpha = np.where(reads > 0, prior.diagonal, prior.off_diagonal) + prior.weight * anchors
        return {"emission": dirichlet(e, alpha)}
    if isinstance(prior, OneCoin | ClassConditional):
        return {"accuracy": stats.beta.logpdf(found["accuracy"], prior.correct, prior.wrong).sum()}
    if isinstance(prior, NormalPredictor):
        return {"predictor": stats.norm.logpdf(found["predictor"], scale=prior.scale).sum()}
    spread = stats.halfnorm(scale=0.7) if prior.diagonal == 5.0 else stats.lognorm(0.5, scale=np.exp(-1.0))
    return {
        "emission": sum(
            logistic_normal(e[at], found["population"][at[-1]], found["spread"]) for at in np.ndindex(e.shape[:-1])
        ),
        "population": dirichlet(found["population"], np.where(reads > 0, prior.diagonal, prior.off_diagonal)),
        "spread": spread.logpdf(found["spread"]),
    }


def logistic_normal(p, centre, spread):
    """Density on the simplex from additive log-ratios, whose covariance is spread² (1 + δ), and their Jacobian."""
    n = len(p) - 1
    alr, mean = np.log(p[:-1] / p[-1]), np.log(centre[:-1] / centre[-1])
    covariance = spread**2 * (np.eye(n) + np.ones((n, n)))
    return stats.multivariate_normal.logpdf(alr, mean, covariance) - np.log(p).sum()


@pytest.mark.parametrize("name", CASES)
def test_log_prior_is_scipys(name):
    prior, rows = CASES[name]
    _, found, _ = traced(name)
    density = quick(lambda values: prior.log_prior(values, rows))(found)
    assert {k: float(v) for k, v in density.items()} == pytest.approx(log_prior_by_hand(prior, rows, found), abs=1e-8)


def test_pooled_density_of_a_row_integrates_to_one_over_the_simplex():
    prior, rows = PooledRows(), Rows(np.eye(3)[[1]], (("judge", 1),), np.zeros((1, 1, 3)), "logit", np.zeros((1, 1, 3)))
    population = np.array([[0.2, 0.5, 0.3]])
    one = {"population": population, "spread": np.asarray(0.6)}
    density = quick(jax.vmap(lambda p: jnp.exp(prior.log_prior({**one, "emission": p[None, None]}, rows)["emission"])))
    # Nodes of Gauss and Legendre on the triangle by its map to the square.
    x, w = np.polynomial.legendre.leggauss(80)
    x, w = (x + 1) / 2, w / 2
    a, t = np.meshgrid(x, x, indexing="ij")
    points = np.stack([a, (1 - a) * t, (1 - a) * (1 - t)], -1).reshape(-1, 3)
    total = (np.outer(w, w) * (1 - a)).ravel() @ np.asarray(density(points))
    assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "name", ["diagonal", "coin", "accuracies-strata", "pooled", "pooled-strata", "predictor-probit"]
)
def test_program_and_prior_differ_by_the_volume_alone(name):
    """The volume is measured by finite differences of the sites in what is drawn."""
    prior, rows = CASES[name]
    drawn, found, _ = traced(name)
    names = list(prior.log_prior(found, rows))
    flat = np.concatenate([np.ravel(value) for value in drawn.values()])

    def split(x):
        parts, at = {}, 0
        for site, value in drawn.items():
            parts[site], at = x[at : at + value.size].reshape(value.shape), at + value.size
        return parts

    def free(x):
        """Sites without the last entry of what sums to one."""
        point = split(x)
        values = {"emission": emissions_by_hand(prior, rows, point), **point}
        if "population_log_ratio" in point:
            values["population"] = simplex(point["population_log_ratio"])
        return np.concatenate(
            [np.ravel(values[n][..., :-1] if n in ("emission", "population") else values[n]) for n in names]
        )

    step = 1e-5 * np.eye(len(flat))
    jacobian = np.stack([(free(flat + s) - free(flat - s)) / 2e-5 for s in step], axis=1)
    drawn_density = quick(lambda point: log_density(program(prior, rows), (), {}, point)[0])(drawn)
    density = sum(log_prior_by_hand(prior, rows, found).values())
    assert float(drawn_density) == pytest.approx(density + np.linalg.slogdet(jacobian)[1], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("diagonal", 18), ("diagonal-strata", 48), ("anchored", 18), ("coin", 2), ("coin-strata", 6), ("accuracies", 6),
     ("accuracies-strata", 24), ("pooled", 18), ("pooled-strata", 48), ("predictor-probit", 4)],
)  # fmt: skip
def test_parameters_that_the_likelihood_sees_are_counted(name, expected):
    prior, rows = CASES[name]
    assert prior.n_free(rows) == expected


def test_anchors_count_by_their_weight():
    rows = replace(THREE, anchors=np.asarray(THREE.anchors) * 0)
    np.testing.assert_array_equal(
        AnchoredDirichlet(0.5, 3.0, 2.0).concentration(rows), DiagonalDirichlet(3.0, 2.0).concentration(rows)
    )
    np.testing.assert_allclose(
        AnchoredDirichlet(0.5, 3.0, 2.0).concentration(THREE) - DiagonalDirichlet(3.0, 2.0).concentration(THREE),
        0.5 * np.asarray(THREE.anchors),
    )
    assert [prior.uses_anchors for prior, _ in CASES.values()].count(True) == 1


def test_one_coin_is_the_class_conditional_with_equal_accuracies():
    accuracy = np.array([0.55, 0.9])
    emissions = []
    for prior, value in ((OneCoin(), accuracy), (ClassConditional(), np.repeat(accuracy[:, None], 3, 1))):
        with handlers.seed(rng_seed=0), handlers.substitute(data={"accuracy": value}):
            emissions.append(np.exp(prior.sample(THREE)[0]))
    np.testing.assert_array_equal(*emissions)


def start_of(name):
    """Where the program reports emissions to be at its start."""
    prior, rows = CASES[name]
    point = prior.initial(rows)
    assert all(np.isfinite(value).all() for value in point.values())

    def run(point):
        with handlers.seed(rng_seed=0), handlers.substitute(data=point):
            return jnp.exp(prior.sample(rows)[0])

    return np.asarray(quick(run)(point))


@pytest.mark.parametrize("name", ["diagonal", "anchored", "diagonal-strata"])
def test_dirichlet_rows_start_at_means_of_counts(name):
    prior, rows = CASES[name]
    counts = np.asarray(prior.concentration(rows)) + np.asarray(rows.shared_out)
    np.testing.assert_allclose(start_of(name), counts / counts.sum(-1, keepdims=True), rtol=1e-9)


def test_accuracies_start_at_means_of_counts():
    votes, reads = np.asarray(THREE.shared_out), np.asarray(THREE.reads)
    right, every = (votes * reads).sum((-2, -1)), votes.sum((-2, -1))
    np.testing.assert_allclose(OneCoin(6.0, 3.0).initial(THREE)["accuracy"], (6 + right) / (9 + every))
    right, every = (votes * reads).sum(-1), votes.sum(-1)
    np.testing.assert_allclose(ClassConditional(6.0, 3.0).initial(THREE)["accuracy"], (6 + right) / (9 + every))


@pytest.mark.parametrize("name", ["pooled", "pooled-strata"])
def test_pooled_rows_start_alike(name):
    prior, rows = CASES[name]
    start = start_of(name)
    votes = np.asarray(rows.shared_out).reshape(-1, rows.n_states, rows.n_categories).sum(0)
    counts = np.where(np.asarray(rows.reads) > 0, prior.diagonal, prior.off_diagonal) + votes
    np.testing.assert_allclose(start, np.broadcast_to(counts / counts.sum(-1, keepdims=True), start.shape), rtol=1e-9)


@pytest.mark.parametrize("name", ["predictor-logit", "predictor-probit"])
def test_predictors_start_at_the_votes_shares(name):
    _, rows = CASES[name]
    counts = np.asarray(rows.shared_out) + 0.5 + np.asarray(rows.reads)
    np.testing.assert_allclose(start_of(name), counts / counts.sum(-1, keepdims=True), rtol=1e-9)


def test_a_spread_starts_where_its_prior_allows():
    prior = PooledRows(spread=dist.Uniform(0.5, 1.0))
    assert 0.5 < float(prior.initial(THREE)["spread"]) < 1.0


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_predictor_and_emission_are_inverses(link):
    a = np.array([-30.0, -6.0, -1.0, 0.0, 1e-3, 2.0, 6.0, 30.0])
    cdf = stats.norm.logcdf if link == "probit" else special.log_expit
    found = np.asarray(log_emission_of(a, link))
    np.testing.assert_allclose(found, np.stack([cdf(-a), cdf(a)], -1), rtol=1e-10, atol=1e-16)
    np.testing.assert_allclose(predictor_of(found, link), a, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_way_there_and_back_has_slope_one(link):
    """Also at one half, where the smaller of two probabilities is either."""
    slope = quick(jax.vmap(jax.grad(lambda x: predictor_of(log_emission_of(x, link), link))))
    np.testing.assert_allclose(slope(np.array([-5.0, 0.0, 0.3, 5.0])), 1.0, atol=1e-8)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("kind", "names"),
    [(DiagonalDirichlet, ("diagonal", "off_diagonal")), (AnchoredDirichlet, ("weight", "diagonal", "off_diagonal")),
     (OneCoin, ("correct", "wrong")), (ClassConditional, ("correct", "wrong")),
     (PooledRows, ("diagonal", "off_diagonal")), (NormalPredictor, ("scale",))],
)  # fmt: skip
def test_hyperparameters_are_positive(kind, names, value):
    for name in names:
        with pytest.raises(InputError, match=rf"{kind.__name__}\.{name}: .* allowed: a positive number"):
            kind(**{name: value})


def test_priors_are_trees_of_their_numbers():
    for prior, _ in CASES.values():
        leaves, tree = jax.tree.flatten(prior)
        again = jax.tree.unflatten(tree, leaves)
        assert type(again) is type(prior)
        assert leaves == jax.tree.leaves(again)
        assert leaves
