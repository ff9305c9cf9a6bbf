"""Calibration: each kind against a grid over its few parameters, and what it is for against simulated truth."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, logsumexp

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.inference.map import MAP
from evidial_bayes.inference.verdict import Thresholds
from evidial_bayes.metrics.calibration import accuracy, brier_score, expected_calibration_error, log_loss
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.reference.calibrate import calibrate
from evidial_bayes.reference.calibration import Confusion, LogLinear
from evidial_bayes.reference.calibration_checks import calibration_checks
from evidial_bayes.reference.effective_judges import effective_share_of_judges
from evidial_bayes.reference.elliptical_slice import elliptical_slice_step
from evidial_bayes.reference.one_pass import OnePass, family_sources, vote_shares
from evidial_bayes.reference.posterior import posterior_reference

N_KNOWN = 80


def copied_panel(make_panel, seed=0, n_cells=400, n_copies=4):
    """Two readers of three states; one of them votes `n_copies` times under other names, with hardly an own error."""
    rng = np.random.default_rng(seed)
    book = make_panel(1).codebook
    truth = rng.choice(3, n_cells, p=[0.5, 0.3, 0.2])

    def read(state, right):
        return np.where(rng.random(len(state)) < right, state, rng.integers(0, 3, len(state)))

    apparent = read(truth, 0.7)
    votes = {f"copy{i}": read(apparent, 0.98) for i in range(n_copies)} | {"other": read(truth, 0.7)}
    ids = [f"u{i}" for i in range(n_cells)]
    rows = [(ids[u], j, book.states[v[u]], j[:4]) for j, v in votes.items() for u in range(n_cells)]
    votes = pd.DataFrame(rows, columns=["cell_id", "judge", "vote", "judge_family"])
    known = [book.states[k] if i < N_KNOWN else "" for i, k in enumerate(truth)]
    cells = pd.DataFrame({"cell_id": ids, "participant_id": ids, "known_state": known,
                          "known_by": ["sampled" if k else "" for k in known]})  # fmt: skip
    return build_panel(votes, cells, book), truth


@pytest.fixture(scope="module")
def copied(make_panel):
    panel, truth = copied_panel(make_panel)
    model = LatentClass(dependence="none", prevalence_formula="~ 1")
    fit = MAP(num_starts=1, progress=False).fit(jax.random.key(0), model, panel.hidden())
    return panel, truth, model, fit, posterior_reference(fit, model, panel.hidden())


def calibrated(copied, calibration, **how):
    panel, _, model, fit, reference = copied
    return calibrate(jax.random.key(2), calibration, reference, fit, model, panel, **how)


def test_tempering_is_that_of_a_grid(copied):
    """Exponent and offsets of three states, their scale known: integrated over a grid of the four normal numbers."""
    panel, _, _, _, reference = copied
    settings = LogLinear({"posterior": 0.4}, common=0.8, offset=0.6, offset_spread=1e-6)
    draws = calibrated(copied, settings, steps=40).parameters
    at_known = np.log(np.maximum(reference.conditional[0, reference.pattern[:N_KNOWN]], 1e-300))
    state = panel.known[:N_KNOWN]
    axis = np.linspace(-4, 4, 41)
    z = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    exponent = 0.4 * np.exp(0.8 * z[:, 0])
    basis = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    offset = 0.6 * z[:, 1:] @ basis
    log_p = log_softmax(exponent[:, None, None] * at_known + offset[:, None], axis=-1)
    density = log_p[:, np.arange(N_KNOWN), state].sum(1) - 0.5 * (z**2).sum(1)
    weight = np.exp(density - logsumexp(density))
    mean, sd = weight @ exponent, np.sqrt(weight @ exponent**2 - (weight @ exponent) ** 2)
    n = draws["exponent"].size / 4  # a step of forty moves leaves little of the one before
    assert float(draws["exponent"].mean()) == pytest.approx(mean, abs=4 * sd / np.sqrt(n))
    assert float(draws["exponent"].std()) == pytest.approx(sd, rel=0.2)
    for k in range(3):
        mean, sd = weight @ offset[:, k], np.sqrt(weight @ offset[:, k] ** 2 - (weight @ offset[:, k]) ** 2)
        assert float(draws["offset"][..., k].mean()) == pytest.approx(mean, abs=4 * sd / np.sqrt(n) + 0.02)


def test_without_known_cells_the_prior_stays(copied):
    panel, _, model, fit, reference = copied
    settings = LogLinear({"posterior": 0.4}, common=0.7)
    draws = calibrate(jax.random.key(3), settings, reference, fit, model, panel.hidden()).parameters
    log_exponent = np.log(draws["exponent"].to_numpy().ravel())
    assert log_exponent.mean() == pytest.approx(np.log(0.4), abs=0.15)
    assert log_exponent.std() == pytest.approx(0.7, rel=0.2)


@pytest.mark.parametrize(
    "settings",
    [LogLinear(), LogLinear({"prevalence": 1.0, "families": None}), LogLinear({"posterior": 0.2, "one_pass": None}),
     LogLinear({"vote_share": 0.7}), LogLinear({"family_shares": 0.7}), Confusion()],
    ids=["tempered", "families", "one_pass", "vote_share", "family_shares", "confusion"],
)  # fmt: skip
def test_every_kind_makes_copies_count_for_less(copied, settings):
    """Four copies of one reader are sure and often wrong: calibration takes the error and most of the loss away."""
    _, truth, _, _, reference = copied
    found = calibrated(copied, settings).reference
    rest = np.arange(N_KNOWN, len(truth))
    before, after = reference.probability[rest], found.probability[rest]
    assert float(log_loss(before, truth[rest])) > 1.5 * float(log_loss(after, truth[rest]))
    # Chance alone leaves about √(b p (1 − p) / n) of the error.
    noise = np.sqrt(10 * 0.25 / len(rest))
    assert float(expected_calibration_error(after, truth[rest])) < 1.5 * noise
    assert found.conditional.shape[0] == 400
    assert found.name == "calibrated"


def test_known_cells_are_known(copied):
    panel, _, _, _, _ = copied
    found = calibrated(copied, LogLinear())
    np.testing.assert_array_equal(found.reference.probability[:N_KNOWN], np.eye(3)[panel.known[:N_KNOWN]])
    assert found.reference.resolved[:N_KNOWN].all()


def test_names_of_sources_and_states_come_through(copied):
    parameters = calibrated(copied, LogLinear({"prevalence": 1.0, "families": 0.3})).parameters
    assert list(parameters["source"].values) == ["prevalence", "copy", "single judges"]
    assert list(parameters["state"].values) == ["s0", "s1", "s2"]
    np.testing.assert_allclose(parameters["offset"].sum("state"), 0, atol=1e-9)
    assert float(parameters["exponent"].sel(source="copy").mean()) < 0.6
    confusion = calibrated(copied, Confusion()).parameters["confusion"]
    assert confusion.dims == ("chain", "draw", "apparent_state", "state")
    np.testing.assert_allclose(confusion.sum("state"), 1)


def test_the_same_key_gives_the_same_reference(copied):
    first, second = (calibrated(copied, LogLinear()).reference.conditional for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_fit_that_saw_the_known_states_is_refused(copied):
    panel, _, model, _, _ = copied
    fit = MAP(num_starts=1, progress=False).fit(jax.random.key(0), model, panel)
    reference = posterior_reference(fit, model, panel)
    with pytest.raises(InputError, match=r"sampled known states hidden.*fit panel\.hidden\(\)"):
        calibrate(jax.random.key(1), LogLinear(), reference, fit, model, panel)


def test_checks_say_what_was_learned_from(copied):
    panel, _, _, _, _ = copied
    parameters = calibrated(copied, LogLinear()).parameters
    checks = {check.name: check for check in calibration_checks(parameters, panel, Thresholds())}
    assert checks["calibration_cells"].status == checks["calibration_states"].status == "PASS"
    none = {c.name: c for c in calibration_checks(parameters, panel.hidden(), Thresholds())}
    assert none["calibration_cells"].status == "REVIEW"
    assert none["calibration_cells"].advice.startswith("No cell has a known state")
    assert "No known cell is s0, s1, s2" in none["calibration_states"].advice


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogLinear({}), "sources is empty; allowed: posterior"),
        (lambda: LogLinear({"posteror": 1.0}), r"'posteror' is unknown\. Did you mean 'posterior'"),
        (lambda: LogLinear({"posterior": -1.0}), r"sources\.posterior: -1\.0 .*positive"),
        (lambda: LogLinear({"posterior": "x"}), r"sources\.posterior: 'x'"),
        (lambda: LogLinear(spread=0.0), r"LogLinear\.spread"),
        (lambda: Confusion(right=1.0), r"right: 1\.0 .*between 0 and 1"),
        (lambda: OnePass(weight=0.0), r"OnePass\.weight"),
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_elliptical_slices_leave_the_posterior_as_it_is():
    """Normal likelihood, normal prior: mean and variance in closed form."""
    y, noise = np.array([1.5, -0.5]), np.array([0.5, 2.0])

    def log_likelihood(z):
        return -0.5 * jnp.sum(((z - y) / noise) ** 2)

    def walk(key):
        return jax.lax.fori_loop(
            0, 60, lambda i, z: elliptical_slice_step(jax.random.fold_in(key, i), z, log_likelihood), jnp.zeros(2)
        )

    n = 4000
    draws = np.asarray(jax.jit(jax.vmap(walk))(jax.random.split(jax.random.key(0), n)))
    variance = 1 / (1 + 1 / noise**2)
    mean = variance * y / noise**2
    assert np.all(np.abs(draws.mean(0) - mean) < 4 * np.sqrt(variance / n))
    assert np.all(np.abs(draws.var(0) / variance - 1) < 4 * np.sqrt(2 / n))


def test_emissions_are_counted_once_and_known_cells_judged_without_their_own_votes(copied):
    """Counts, logs and what is left out, written out in loops."""
    panel, _, _, _, _ = copied
    share = vote_shares(panel)["family_shares"]
    _, by_judge, names = family_sources(panel)
    assert names == ["copy", "single judges"]
    known = np.where(np.arange(len(panel.known)) < 5, panel.known, -1)
    found, left_out = OnePass(diagonal=5.0, off_diagonal=2.0, weight=0.3).evidence(panel, share, known, by_judge)
    judges = panel.coords["judge"]
    cast = {(u, j): y for u, j, y in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True)}

    def by_hand(u, source, skip=None):
        total = np.zeros(3)
        for j in np.flatnonzero(by_judge[source]):
            counts = 2.0 + 3.0 * np.eye(3)
            for (cell, judge), y in cast.items():
                if judge == j and cell != skip:
                    counts[:, y] += np.eye(3)[known[cell]] if known[cell] >= 0 else 0.3 * share[cell]
            total += np.log(counts[:, cast[u, j]] / counts.sum(1))
        return total

    for source in range(2):
        np.testing.assert_allclose(found[source, 7], by_hand(7, source), atol=1e-10)
        np.testing.assert_allclose(left_out[source, 3], by_hand(3, source, skip=3), atol=1e-10)
    assert list(judges) == ["copy0", "copy1", "copy2", "copy3", "other"]


def test_vote_shares_are_counted(copied):
    panel, _, _, _, _ = copied
    shares = vote_shares(panel)
    names = list(panel.coords["judge"])
    for u in range(5):
        votes = {
            names[j]: y
            for c, j, y in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True)
            if c == u
        }
        plain = np.mean([np.eye(3)[y] for y in votes.values()], axis=0)
        family = np.mean([np.eye(3)[y] for name, y in votes.items() if name != "other"], axis=0)
        np.testing.assert_allclose(shares["vote_share"][u], 0.98 * plain + 0.02 / 3)
        by_family = (family + np.eye(3)[votes["other"]]) / 2
        np.testing.assert_allclose(shares["family_shares"][u], 0.98 * by_family + 0.02 / 3)


def test_effective_judges_of_copies_and_of_strangers(make_panel):
    """Perfect copies are one judge; coins are as many as they are."""
    panel, _ = copied_panel(make_panel, 5)
    n = len(panel.cells)
    of_first = {u: y for u, j, y in zip(panel.vote_cell, panel.vote_judge, panel.vote_category, strict=True) if j == 0}
    copies = replace(panel, vote_category=np.array([of_first[u] for u in panel.vote_cell]))
    assert effective_share_of_judges(copies) == pytest.approx(1 / 5)
    coins = replace(panel, vote_category=np.random.default_rng(1).integers(0, 3, len(panel.vote_cell)))
    # Mean correlation of ten pairs of strangers: its standard error is 1 / √(10 n).
    assert effective_share_of_judges(coins) > 1 / (1 + 4 * 4 / np.sqrt(10 * n))


def test_scores_worked_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2], [0.1, 0.0, 0.9], [0.3, 0.6, 0.1]])
    state = np.array([0, 1, 0, 1])
    assert float(accuracy(p, state)) == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert float(log_loss(p, state)) == pytest.approx(-np.log([0.7, 0.4, 0.1, 0.6]).mean())
    brier = [0.09 + 0.04 + 0.01, 0.16 + 0.36 + 0.04, 0.81 + 0.81, 0.09 + 0.16 + 0.01]
    assert float(brier_score(p, state)) == pytest.approx(np.mean(brier))
    gaps = [0.3, 0.4, 0.9, 0.4]  # one cell a bin; the tie goes to the first state, which is wrong
    assert float(expected_calibration_error(p, state)) == pytest.approx(np.mean(gaps))


def test_calibrated_probabilities_have_little_error():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], 20_000)
    state = (p.cumsum(1) < rng.random((len(p), 1))).sum(1)
    assert float(expected_calibration_error(p, state)) < 3 * np.sqrt(10 * 0.25 / len(p))
