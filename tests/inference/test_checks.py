import numpy as np
import pytest
import xarray as xr

from evidial_bayes.data.errors import InputError
from evidial_bayes.inference.checks import run_checks
from evidial_bayes.inference.verdict import Thresholds


def fake_fit(panel, *, shift=0.0, n=500, emission=None, diverging=0, energy=None):
    """Independent draws of one parameter in four chains, the last one shifted; and emissions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, n))
    x[3] += shift
    judges, states = len(panel.coords["judge"]), len(panel.coords["state"])
    if emission is None:
        emission = np.broadcast_to(0.1 + 0.7 * np.eye(states), (4, judges, states, states))
    noise = rng.uniform(0.999, 1.001, size=(4, n, judges, states, states))
    diverged = np.zeros((4, n), bool)
    diverged.flat[:diverging] = True
    posterior = xr.Dataset(
        {
            "theta": (("chain", "draw"), x),
            "emission": (("chain", "draw", "judge", "state", "category"), emission[:, None] * noise),
        }
    )
    posterior = posterior.assign_coords({d: np.arange(s) for d, s in posterior.sizes.items()})
    stats = xr.Dataset(
        {
            "diverging": (("chain", "draw"), diverged),
            "energy": (("chain", "draw"), rng.normal(size=(4, n)) if energy is None else energy),
        }
    )
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})


def verdicts(fit, panel, **thresholds):
    return {check.name: check for check in run_checks(fit, panel, Thresholds(**thresholds))}


def test_independent_draws_pass_everything(panel):
    found = verdicts(fake_fit(panel), panel)
    assert {c.status for c in found.values()} == {"PASS"}
    assert set(found) == {"r_hat", "ess_bulk", "ess_tail", "divergences", "e_bfmi", "class_order", "diagonal"}


def test_a_chain_in_another_mode_fails_by_name(panel):
    found = verdicts(fake_fit(panel, shift=5.0), panel)
    assert found["r_hat"].status == "FAIL"
    assert "theta" in found["r_hat"].advice
    assert found["ess_bulk"].status == "FAIL"


def test_few_draws_are_for_review(panel):
    found = verdicts(fake_fit(panel, n=60), panel)
    assert found["ess_bulk"].status == "REVIEW"
    assert "num_samples" in found["ess_bulk"].advice


@pytest.mark.parametrize(("diverging", "status"), [(0, "PASS"), (1, "REVIEW"), (20, "REVIEW"), (21, "FAIL")])
def test_divergences_are_counted(panel, diverging, status):
    check = verdicts(fake_fit(panel, diverging=diverging), panel)["divergences"]
    assert (check.status, check.value) == (status, diverging / 2000)


def test_slow_energy_fails(panel):
    # A random walk: the mean squared step over the variance falls far below one.
    energy = np.random.default_rng(1).normal(size=(4, 500)).cumsum(1)
    assert verdicts(fake_fit(panel, energy=energy), panel)["e_bfmi"].status == "FAIL"


def test_swapped_classes_fail_and_are_named(panel):
    judges = len(panel.coords["judge"])
    right = np.broadcast_to(0.1 + 0.7 * np.eye(3), (judges, 3, 3))
    swapped = right[:, [1, 0, 2]]
    check = verdicts(fake_fit(panel, emission=np.stack([right, right, swapped, right])), panel)["class_order"]
    assert check.status == "FAIL"
    assert "chain 2: 'no' is read as 'unclear', 'unclear' is read as 'no'" in check.advice


def test_one_judge_off_the_diagonal_is_for_review_and_most_judges_fail(panel):
    judges = len(panel.coords["judge"])
    emission = np.tile(0.1 + 0.7 * np.eye(3), (4, judges, 1, 1))
    emission[:, 0, 1] = [0.8, 0.1, 0.1]
    check = verdicts(fake_fit(panel, emission=emission), panel)["diagonal"]
    assert check.status == "REVIEW"
    assert f"{panel.coords['judge'][0]} reads 'unclear' as 'no'" in check.advice
    emission[:, :, 1] = [0.8, 0.1, 0.1]
    check = verdicts(fake_fit(panel, emission=emission), panel)["diagonal"]
    assert check.status == "FAIL"
    assert "does not read unclear as itself" in check.advice


def test_an_undefined_value_fails(panel):
    fit = fake_fit(panel)
    constant = fit["posterior"].dataset.assign(theta=lambda d: xr.full_like(d["theta"], np.nan))
    found = verdicts(xr.DataTree.from_dict({"posterior": constant}), panel)
    assert found["r_hat"].status == "FAIL"
    assert np.isnan(found["r_hat"].value)
    assert "divergences" not in found


def test_a_real_fit_passes(fit, panel):
    found = verdicts(fit, panel, ess_review=100.0, rhat_review=1.02)
    assert {c.status for c in found.values()} <= {"PASS", "REVIEW"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rhat_fail": 1.001}, r"checks\.rhat_fail: 1\.001 would be reached before checks\.rhat_review, 1\.01"),
        ({"ess_fail": 500}, r"checks\.ess_fail: 500 would be reached before"),
        ({"bfmi_review": "x"}, r"checks\.bfmi_review: 'x' is not usable; allowed: a number"),
    ],
)
def test_thresholds_out_of_order_are_named(change, message):
    with pytest.raises(InputError, match=message):
        Thresholds(**change)
