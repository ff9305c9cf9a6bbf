import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.reference.base import Reference, draw_states

CODEBOOK = Codebook.from_mapping({"name": "three", "states": ["a", "b", "c"]})
# Two parameter draws, two patterns; dyadic numbers, so that ties are exact.
CONDITIONAL = np.array([[[0.625, 0.25, 0.125], [0.0, 0.5, 0.5]], [[0.125, 0.5, 0.375], [0.0, 1.0, 0.0]]])
PATTERN = np.array([0, 1, 1, 0])


def build(**changes):
    fields = {
        "name": "test",
        "codebook": CODEBOOK,
        "cells": pd.Index(["u1", "u2", "u3", "u4"], name="cell"),
        "conditional": CONDITIONAL,
        "pattern": PATTERN,
        "resolved": np.ones(4, bool),
        "n_votes": np.array([3, 2, 2, 3]),
    }
    return Reference(**fields | changes)


def test_probability_is_the_mean_over_draws():
    first, second = [0.375, 0.375, 0.25], [0, 0.75, 0.25]
    assert build().probability.tolist() == [first, second, second, first]


def test_map_state_takes_the_first_of_equals():
    tied = np.array([[[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]])
    assert build(conditional=tied).map_state.tolist() == [0, 2, 2, 0]


def test_entropy_in_nats():
    certain_and_even = np.array([[[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]])
    entropy = build(conditional=certain_and_even).entropy
    np.testing.assert_allclose(entropy, [0, np.log(3), np.log(3), 0], atol=1e-15)
    assert not np.signbit(entropy).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditional": CONDITIONAL[0]}, "conditional must be"),
        ({"conditional": CONDITIONAL[..., :2]}, "state=3"),
        ({"conditional": CONDITIONAL[:0]}, "conditional must be"),
        ({"conditional": CONDITIONAL * 0.9}, "sum to one"),
        ({"conditional": CONDITIONAL - [0.1, -0.1, 0.0]}, "non-negative"),
        ({"conditional": np.full_like(CONDITIONAL, np.nan)}, "non-negative"),
        ({"pattern": np.array([0, 1, 2, 0])}, r"pattern must lie in 0\.\.1"),
        ({"pattern": np.array([0, -1, 1, 0])}, r"pattern must lie in 0\.\.1"),
        ({"pattern": PATTERN[:3]}, "pattern must be"),
        ({"resolved": np.ones(3, bool)}, "resolved must be"),
        ({"resolved": np.ones(4, int)}, "resolved must be boolean"),
        ({"n_votes": np.ones(5, int)}, "n_votes must be"),
        ({"cells": pd.Index(["u1", "u2", "u2", "u4"])}, "'u2' appears more than once"),
    ],
)
def test_arrays_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().name = "other"


def test_frequencies_follow_the_conditional():
    n = 40_000
    draws = np.repeat([0, 1], n // 2)
    cells = np.array([3, 1])
    state = draw_states(jax.random.key(1), build(), cells, draws, states=True, parameters=True)
    assert state.dtype == np.int8
    assert state.shape == (n, 2)
    for d in (0, 1):
        for c, cell in enumerate(cells):
            frequency = np.bincount(state[draws == d, c], minlength=3) / (n // 2)
            p = CONDITIONAL[d, PATTERN[cell]]
            # 4.5 standard errors: one false alarm in 10,000 sets of these twelve; exact where p is 0 or 1.
            assert (np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / (n // 2))).all()


def test_parameters_frozen_draws_from_the_mean():
    n = 40_000
    reference = build()
    state = draw_states(jax.random.key(2), reference, np.arange(4), np.arange(n) % 2, states=True, parameters=False)
    for cell in range(4):
        p = reference.probability[cell]
        frequency = np.bincount(state[:, cell], minlength=3) / n
        assert (np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / n)).all()


def test_parameters_are_shared_by_all_cells_of_a_draw():
    # Under the first parameters every cell is in state a, under the second in b.
    one_or_other = np.array([[[1.0, 0, 0], [1.0, 0, 0]], [[0, 1.0, 0], [0, 1.0, 0]]])
    n = 4000
    draws = np.arange(n) % 2
    arguments = (jax.random.key(3), build(conditional=one_or_other), np.arange(4), draws)
    joint = draw_states(*arguments, states=True, parameters=True)
    assert (joint == draws[:, None]).all()
    independent = draw_states(*arguments, states=True, parameters=False)
    agree = (independent[:, 0] == independent[:, 1]).mean()
    assert abs(agree - 0.5) < 4.5 * 0.5 / np.sqrt(n)


def test_states_frozen():
    arguments = (jax.random.key(4), build(), np.array([0, 1]), np.array([1, 0, 1]))
    # Draw 0: most probable a, and b before c on a tie. Draw 1: b and b. Mean: a before b on a tie, and b.
    assert draw_states(*arguments, states=False, parameters=True).tolist() == [[1, 1], [0, 1], [1, 1]]
    frozen = draw_states(*arguments, states=False, parameters=False)
    assert frozen.tolist() == [[0, 1]] * 3
    assert build().map_state.tolist() == [0, 1, 1, 0]


def test_rows_do_not_depend_on_the_number_of_rows():
    draws = np.arange(150) % 2
    arguments = (jax.random.key(5), build(), np.arange(4))
    all_rows = draw_states(*arguments, draws, states=True, parameters=True)
    first_rows = draw_states(*arguments, draws[:7], states=True, parameters=True)
    assert (all_rows[:7] == first_rows).all()


def test_rows_that_sum_to_one_only_nearly_never_give_an_impossible_state():
    # A posterior computed in single precision: the last state has probability zero and must stay impossible.
    nearly = np.array([[[0.6, 0.4 - 4e-6, 0.0], [0.0, 1 - 4e-6, 0.0]]])
    reference = build(conditional=nearly)
    state = draw_states(jax.random.key(6), reference, np.arange(4), np.zeros(20_000, int), states=True, parameters=True)
    assert state.max() == 1
    assert (state[:, 1] == 1).all()
