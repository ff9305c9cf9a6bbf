from fractions import Fraction
from math import nan

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidial_bayes.metrics.support import (
    ABSTAINED,
    FAILED,
    METRICS,
    count_support,
    support_metrics,
    tally_answers,
)

# Three labels × four states: supported on the diagonal; state 1 settles on label 1, state 2 on label 2,
# states 0 and 3 settle nothing; label 0 is supported by state 0 only.
SUPPORT = np.array([[0, 2, 2, 1], [1, 0, 2, 1], [1, 2, 0, 1]], np.int8)
SHARES = METRICS[-6:]


def measure(state, weight, rows, label, resolved, n_systems=1, support=SUPPORT):
    system, cell, prediction = (np.array(column) for column in zip(*rows, strict=True))
    answers = tally_answers(system, cell, prediction, np.array(label), n_systems)
    counts = count_support(
        jnp.array(state), jnp.array(weight, float), answers, jnp.array(label), jnp.array(resolved), support
    )
    return {name: np.asarray(value) for name, value in support_metrics(counts).items()}


def by_rows(state, weight, rows, label, resolved, support=SUPPORT):
    """The definitions of the source, row by row in exact arithmetic, for one system."""
    total = dict.fromkeys("N C U D S R Rc incorrect abstained failed".split(), Fraction(0))
    for _, cell, prediction in rows:
        w = Fraction(weight[cell])
        total["N"] += w
        if prediction == FAILED:
            total["failed"] += w
            continue
        if not resolved[cell]:
            total["R"] += w
        if prediction == ABSTAINED:
            total["abstained"] += w
        elif prediction != label[cell]:
            total["incorrect"] += w
        else:
            total["C"] += w
            kind = "SUD"[support[label[cell]][state[cell]]] if resolved[cell] else "Rc"
            total[kind] += w

    def over(numerator, denominator):
        return float(numerator / denominator) if denominator else nan

    n, c, r, rc, lacking = total["N"], total["C"], total["R"], total["Rc"], total["U"] + total["D"]
    answered = c + total["incorrect"]
    return {
        "ucr": over(lacking, n - r),
        "hit_caliber": over(lacking, c - rc),
        "accuracy": over(c, answered),
        "coverage": over(answered, n),
        "abstention_rate": over(total["abstained"], n),
        "failure_rate": over(total["failed"], n),
        "supported_correct_rate": over(total["S"], n - r),
        "ucr_lower": over(lacking, n),
        "ucr_upper": over(lacking + rc, n),
        "hit_caliber_lower": over(lacking, c),
        "hit_caliber_upper": over(lacking + rc, c),
        "correct_supported": over(total["S"], n),
        "correct_unsupported": over(total["U"], n),
        "correct_opposed": over(total["D"], n),
        "correct_unresolved": over(rc, n),
        "incorrect": over(total["incorrect"], n),
        "not_answered": over(total["abstained"] + total["failed"], n),
    }


@pytest.mark.parametrize(("lacking", "ucr", "caliber"), [(42, 0.4828, 0.8077), (43, 0.4943, 0.8269)], ids=["42", "43"])
def test_published_rates(lacking, ucr, caliber):
    # EviDial §4.2: of 87 planned predictions 69 are answered, 52 correct, 42 or 43 of them without support.
    answers = [0] * 52 + [1] * 17 + [ABSTAINED] * 10 + [FAILED] * 8
    rows = [(0, cell, answer) for cell, answer in enumerate(answers)]
    state = [1] * 20 + [3] * (lacking - 20) + [0] * (87 - lacking)  # 20 opposed, the rest unsupported
    got = measure(state, np.ones(87), rows, [0] * 87, [True] * 87)
    assert round(got["ucr"].item(), 4) == ucr
    assert round(got["hit_caliber"].item(), 4) == caliber
    assert got["ucr"].item() == lacking / 87
    assert got["hit_caliber"].item() == lacking / 52
    assert got["accuracy"].item() == 52 / 69
    assert got["coverage"].item() == 69 / 87
    assert got["abstention_rate"].item() == 10 / 87
    assert got["failure_rate"].item() == 8 / 87
    assert got["correct_opposed"].item() == 20 / 87


def test_every_kind_of_row_by_hand():
    # cell        0   1   2   3    4   5     6        7   8       9        10
    # label       0   1   1   2    0   1     1        2   0       1        2
    # state       0   1   3   1    2   0     1        2   0       1        3
    # resolved    y   y   y   y    n   y     n        y   n       y        n
    # prediction  0   1   1   2    0   0     0        abs abs     failed   failed
    # outcome     S   S   U   D    Rc  wrong wrong,R  abs abs,R   failed   failed (never R)
    label = [0, 1, 1, 2, 0, 1, 1, 2, 0, 1, 2]
    state = [0, 1, 3, 1, 2, 0, 1, 2, 0, 1, 3]
    resolved = np.array(list("yyyynynynyn")) == "y"
    prediction = [0, 1, 1, 2, 0, 0, 0, ABSTAINED, ABSTAINED, FAILED, FAILED]
    got = measure(state, np.ones(11), [(0, c, p) for c, p in enumerate(prediction)], label, resolved)
    # N 11, C 5, S 2, U 1, D 1, R 3 (cells 4, 6, 8), Rc 1, answered 7.
    expected = {
        "ucr": 2 / 8,
        "hit_caliber": 2 / 4,
        "accuracy": 5 / 7,
        "coverage": 7 / 11,
        "abstention_rate": 2 / 11,
        "failure_rate": 2 / 11,
        "supported_correct_rate": 2 / 8,
        "ucr_lower": 2 / 11,
        "ucr_upper": 3 / 11,
        "hit_caliber_lower": 2 / 5,
        "hit_caliber_upper": 3 / 5,
        "correct_supported": 2 / 11,
        "correct_unsupported": 1 / 11,
        "correct_opposed": 1 / 11,
        "correct_unresolved": 1 / 11,
        "incorrect": 2 / 11,
        "not_answered": 4 / 11,
    }
    assert {name: value.item() for name, value in got.items()} == expected
    assert tuple(got) == METRICS


def test_ratios_over_nothing_are_nan():
    everything_failed = measure([0, 1], np.ones(2), [(0, 0, FAILED), (0, 1, FAILED)], [0, 0], [True, False])
    assert np.isnan(everything_failed["accuracy"])
    assert np.isnan(everything_failed["hit_caliber"])
    assert np.isnan(everything_failed["hit_caliber_upper"])
    assert everything_failed["ucr"] == 0  # failed predictions stay in the denominator
    assert everything_failed["failure_rate"] == 1

    nothing_resolved = measure([0, 1], np.ones(2), [(0, 0, 0), (0, 1, 1)], [0, 0], [False, False])
    assert np.isnan(nothing_resolved["ucr"])
    assert np.isnan(nothing_resolved["supported_correct_rate"])
    assert np.isnan(nothing_resolved["hit_caliber"])
    assert nothing_resolved["hit_caliber_lower"] == 0
    assert nothing_resolved["hit_caliber_upper"] == 1
    assert nothing_resolved["accuracy"] == 0.5

    no_weight = measure([0, 1], [0.0, 1.0], [(0, 0, 0), (1, 1, 0)], [0, 0], [True, True], n_systems=2)
    assert all(np.isnan(value[0]) and not np.isnan(value[1]) for value in no_weight.values())


def test_bounds_need_not_enclose_ucr_when_wrong_predictions_are_unresolved():
    # One correct unsupported prediction and three wrong ones on unresolved cells: UCR is 1/1, yet whatever
    # the three states are, one planned prediction of four is unsupported-correct.
    rows = [(0, cell, prediction) for cell, prediction in enumerate([0, 1, 1, 1])]
    got = measure([3, 0, 0, 0], np.ones(4), rows, [0] * 4, [True, False, False, False])
    assert got["ucr"] == 1
    assert got["ucr_lower"] == got["ucr_upper"] == 0.25


def test_several_runs_of_a_cell_each_count():
    got = measure([3, 0], np.ones(2), [(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0)], [0, 0], [True, True])
    assert got["ucr"] == 2 / 4
    assert got["hit_caliber"] == 2 / 3
    assert got["accuracy"] == 3 / 4


def test_vmap_over_draws_equals_a_loop():
    rng = np.random.default_rng(0)
    state, weight = rng.integers(0, 4, (6, 9)), rng.dirichlet(np.ones(9), 6)
    label, resolved = rng.integers(0, 3, 9), rng.random(9) < 0.7
    answers = tally_answers(np.arange(18) % 2, np.repeat(np.arange(9), 2), rng.integers(-2, 3, 18), label, 2)

    def one(state, weight):
        return support_metrics(count_support(state, weight, answers, label, resolved, SUPPORT))

    together = jax.vmap(one)(jnp.array(state), jnp.array(weight))
    for d in range(6):
        alone = one(jnp.array(state[d]), jnp.array(weight[d]))
        for name in METRICS:
            np.testing.assert_allclose(together[name][d], alone[name], rtol=1e-12)


@st.composite
def tables(draw):
    """A fixed size keeps one compiled program for all examples."""
    n_cells, n_rows = 5, 8
    ints = st.integers
    cells = draw(st.lists(ints(0, n_cells - 1), min_size=n_rows, max_size=n_rows))
    predictions = draw(st.lists(ints(-2, 2), min_size=n_rows, max_size=n_rows))
    per_cell = {"min_size": n_cells, "max_size": n_cells}
    return {
        "state": draw(st.lists(ints(0, 3), **per_cell)),
        "weight": draw(st.lists(ints(0, 3).map(float), **per_cell)),
        "rows": [(0, cell, prediction) for cell, prediction in zip(cells, predictions, strict=True)],
        "label": draw(st.lists(ints(0, 2), **per_cell)),
        "resolved": draw(st.lists(st.booleans(), **per_cell)),
    }


properties = settings(max_examples=100, deadline=None, derandomize=True)


@properties
@given(tables())
def test_equals_the_definitions_row_by_row(table):
    got, expected = measure(**table), by_rows(**table)
    for name in METRICS:
        np.testing.assert_allclose(got[name].item(), expected[name], rtol=1e-14, err_msg=name)


@properties
@given(tables(), st.permutations(range(8)), st.permutations(range(5)))
def test_order_of_rows_and_names_of_cells_do_not_matter(table, row_order, new_cell):
    shuffled = dict(table)
    shuffled["rows"] = [(0, new_cell[table["rows"][r][1]], table["rows"][r][2]) for r in row_order]
    for field in ("state", "weight", "label", "resolved"):
        shuffled[field] = [table[field][new_cell.index(cell)] for cell in range(5)]
    got, expected = measure(**shuffled), measure(**table)
    for name in METRICS:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


@properties
@given(tables())
def test_shares_sum_to_one(table):
    got = measure(**table)
    total = sum(got[name].item() for name in SHARES)
    assert np.isnan(total) if np.isnan(got["coverage"]) else abs(total - 1) < 1e-12


@properties
@given(tables(), st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_bounds_hold_whatever_the_unresolved_states_are(table, revealed):
    got = measure(**table)
    state = [s if known else r for s, known, r in zip(table["state"], table["resolved"], revealed, strict=True)]
    complete = measure(**table | {"state": state, "resolved": [True] * 5})
    for rate in ("ucr", "hit_caliber"):
        if not np.isnan(complete[rate]):
            assert got[f"{rate}_lower"] - 1e-12 <= complete[rate] <= got[f"{rate}_upper"] + 1e-12
    if not np.isnan(got["hit_caliber"]):
        assert got["hit_caliber_lower"] - 1e-12 <= got["hit_caliber"] <= got["hit_caliber_upper"] + 1e-12
