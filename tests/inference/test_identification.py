"""What is wrong with a model or a panel is said in words, before the fit or after it."""

import re
from dataclasses import replace

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

from evidial_bayes.data.panel import build_panel
from evidial_bayes.inference.checks import run_checks
from evidial_bayes.inference.identification import identify
from evidial_bayes.inference.map import MAP
from evidial_bayes.inference.verdict import Thresholds
from evidial_bayes.models.emission.accuracy import OneCoin
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.priors import Misreading

LIMITS = Thresholds()


def complete_panel(make_panel, n_judges, n_states, n_cells=60, seed=0, known=()):
    """Every judge votes on every cell, right four times in five."""
    book = make_panel(1, n_states=n_states).codebook
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_states, n_cells)
    votes = np.where(rng.random((n_judges, n_cells)) < 0.8, truth, rng.integers(0, n_states, (n_judges, n_cells)))
    ids = [f"u{i}" for i in range(n_cells)]
    cells = pd.DataFrame({"cell_id": ids, "participant_id": ids})
    if known:
        cells["known_state"] = [book.states[truth[i]] if i in known else "" for i in range(n_cells)]
        cells["known_by"] = ["sampled" if i in known else "" for i in range(n_cells)]
    rows = [(ids[i], f"j{j}", book.states[votes[j, i]]) for i in range(n_cells) for j in range(n_judges)]
    return build_panel(pd.DataFrame(rows, columns=["cell_id", "judge", "vote"]), cells, book)


def named(checks, name):
    return next(check for check in checks if check.name == name)


def test_three_binary_judges_cannot_tell_two_classes_and_a_loading(make_panel):
    panel = complete_panel(make_panel, 3, 2)
    check = named(identify(LatentClass(dependence="severity", prevalence_formula="~ 1"), panel, LIMITS), "parameters")
    assert (check.status, check.value, check.threshold) == ("REVIEW", 8, 7)
    assert "8 free parameters on 7 degrees of freedom" in check.advice
    found = identify(LatentClass(dependence="none", prevalence_formula="~ 1"), panel, LIMITS)
    assert named(found, "parameters").status == "PASS"
    assert named(found, "local_rank").status == "PASS"


def test_four_binary_judges_can(make_panel):
    """Four raters are the fewest for two classes and a loading: 10 parameters on 15."""
    panel = complete_panel(make_panel, 4, 2)
    found = identify(LatentClass(dependence="severity", prevalence_formula="~ 1"), panel, LIMITS)
    assert (named(found, "parameters").value, named(found, "parameters").threshold) == (10, 15)
    assert named(found, "local_rank").status == "PASS"


def test_counting_is_not_enough(make_panel):
    """Goodman (1974): three classes of four binary items have 14 parameters on 15 and are not identified."""
    panel = complete_panel(make_panel, 4, 3)
    book = panel.codebook
    binary = replace(
        book, categories=book.categories[:2], reads=dict(zip(book.states, ["s0", "s1", "s1"], strict=True))
    )
    panel = replace(panel, codebook=binary, vote_category=np.minimum(panel.vote_category, 1))
    found = identify(LatentClass(dependence="none", prevalence_formula="~ 1"), panel, LIMITS)
    assert (named(found, "parameters").status, named(found, "parameters").value) == ("PASS", 14)
    check = named(found, "local_rank")
    assert (check.status, check.value) == ("REVIEW", 13)
    assert check.advice.startswith("1 of 14 parameters move no vote pattern's probability")


def test_misreading_cannot_be_seen_without_known_states(make_panel):
    model = LatentClass(dependence="none", misreading=Misreading(), prevalence_formula="~ 1")
    check = named(identify(model, complete_panel(make_panel, 4, 2), LIMITS), "local_rank")
    assert check.status == "REVIEW"
    assert "misreading" in check.advice
    assert "2 of 11 parameters" in check.advice
    known = identify(model, complete_panel(make_panel, 4, 2, known=range(20)), LIMITS)
    assert named(known, "local_rank").status == "PASS"


def test_effects_of_families_of_one_judge_are_seen_to_be_redundant(make_panel):
    """Without families of two there is nothing by which a family differs from its judge."""
    panel = complete_panel(make_panel, 3, 2)
    model = LatentClass(
        dependence="severity", link="probit", family_effect=dist.HalfNormal(1.0), prevalence_formula="~ 1"
    )
    assert named(identify(model, panel, LIMITS), "local_rank").status == "REVIEW"


def test_margins_of_a_table_are_not_counted_twice(make_panel):
    panel = complete_panel(make_panel, 3, 2)
    gone = panel.vote_cell == 0
    gone[1:] = False  # one judge is silent on the first cell
    fewer = replace(panel, vote_cell=panel.vote_cell[~gone], vote_judge=panel.vote_judge[~gone],
                    vote_category=panel.vote_category[~gone])  # fmt: skip
    model = LatentClass(dependence="none", prevalence_formula="~ 1")
    assert named(identify(model, fewer, LIMITS), "parameters").threshold == 7


def test_many_judges_and_cells_do_not_overflow(make_panel):
    panel = complete_panel(make_panel, 70, 2, n_cells=120)
    found = identify(LatentClass(prevalence_formula="~ 1", emission=OneCoin()), panel, LIMITS)
    assert named(found, "parameters").threshold == 120


def test_a_constant_judge_and_one_with_two_votes_are_named(make_panel):
    panel = complete_panel(make_panel, 4, 2)
    of_first, of_last = panel.vote_judge == 0, panel.vote_judge == 3
    category = np.where(of_first, 1, panel.vote_category)
    keep = ~of_last | (np.cumsum(of_last) <= 2)
    panel = replace(
        panel, vote_cell=panel.vote_cell[keep], vote_judge=panel.vote_judge[keep], vote_category=category[keep]
    )
    found = identify(LatentClass(dependence="none", prevalence_formula="~ 1"), panel, LIMITS)
    assert "j0 (always 's1')" in named(found, "constant_judge").advice
    assert "j3 (2)" in named(found, "few_votes").advice
    assert {named(found, name).status for name in ("constant_judge", "few_votes")} == {"REVIEW"}


def tree(posterior, lp=None, modes=None):
    groups = {"posterior": xr.Dataset({k: (("chain", "draw", *dims), v) for k, (dims, v) in posterior.items()})}
    if lp is not None:
        groups["sample_stats"] = xr.Dataset({"lp": (("chain", "draw"), lp)})
    if modes is not None:
        groups["modes"] = modes
    return xr.DataTree.from_dict(groups)


def draws(centre, scale, shape=(2, 400), seed=0):
    return centre + scale * np.random.default_rng(seed).normal(size=shape)


def test_a_loading_at_zero_and_one_that_runs_away_are_named(make_panel):
    panel = make_panel(1)
    loadings = np.stack([np.abs(draws(0, 0.03)), draws(1, 0.1), draws(40, 5)], axis=-1)
    fit = tree({"sigma": (("judge",), loadings)})
    fit["posterior"] = fit["posterior"].dataset.assign_coords(judge=["a", "b", "c"])
    found = run_checks(fit, panel, LIMITS)
    assert "sigma of judge 'a' is next to zero" in named(found, "zero_sigma").advice
    assert "model.dependence=none would fit as well" in named(found, "zero_sigma").advice
    assert "sigma of judge 'c' runs away" in named(found, "runaway_sigma").advice
    whole = run_checks(tree({"sigma": ((), draws(1, 0.1))}), panel, LIMITS)
    assert named(whole, "zero_sigma").status == named(whole, "runaway_sigma").status == "PASS"


def test_chains_in_two_modes_are_named(make_panel):
    lp = draws(-500, 3)
    apart = lp - np.array([[0.0], [40.0]])
    sigma = {"sigma": ((), draws(1, 0.1))}
    assert named(run_checks(tree(sigma, lp), make_panel(1), LIMITS), "modes").status == "PASS"
    check = named(run_checks(tree(sigma, apart), make_panel(1), LIMITS), "modes")
    assert check.status == "FAIL"
    assert re.search(r"chain 1 stays (39|40)\.\d below chain 0", check.advice)


@pytest.mark.parametrize(
    ("share", "gap", "converged", "status", "words"),
    [
        (0.8, np.nan, True, "PASS", "16 of 20 starts found the best mode."),
        (0.8, 30.0, True, "PASS", "the next one is 30 below it"),
        (0.8, 0.5, True, "REVIEW", "A mode nearly as good"),
        (0.05, 30.0, True, "REVIEW", "1 of 20 starts .* raise inference.num_starts"),
        (0.8, 30.0, False, "FAIL", "had not converged"),
    ],
)
def test_a_search_says_what_it_found(make_panel, share, gap, converged, status, words):
    modes = xr.Dataset({"converged": ("start", np.full(20, converged))})
    modes.attrs = {"share_best": share, "gap": gap, "relabelled": 0}
    fit = tree({"sigma": ((), np.ones((1, 1)))}, np.ones((1, 1)), modes)
    found = run_checks(fit, make_panel(1), LIMITS)
    assert named(found, "modes").status == status
    assert re.search(words, named(found, "modes").advice)
    assert not {"r_hat", "ess_bulk"} & {check.name for check in found}


def test_a_state_without_cells_is_named(make_panel):
    panel = complete_panel(make_panel, 4, 3, n_cells=90)
    panel = replace(panel, vote_category=np.minimum(panel.vote_category, 1))
    fit = MAP(num_starts=2, progress=False).fit(jax.random.key(0), LatentClass(prevalence_formula="~ 1"), panel)
    check = named(run_checks(fit, panel, LIMITS), "empty_class")
    assert check.status == "REVIEW"
    assert "Hardly any cell is s2" in check.advice
