"""How true state probabilities are on cells whose state is known.

Each is a pure function of probabilities ``[cell, state]`` and known states ``[cell]``, NaN without cells.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def accuracy(probability: ArrayLike, state: ArrayLike) -> Array:
    """Share of cells whose most probable state is theirs; of k states that tie for it, each counts 1/k."""
    p = jnp.asarray(probability)
    most = p >= p.max(-1, keepdims=True)
    return jnp.mean(_of_state(most, state) / most.sum(-1))


def log_loss(probability: ArrayLike, state: ArrayLike) -> Array:
    """Mean of minus the log probability of a cell's state, in nats; infinite where that is zero."""
    return -jnp.mean(jnp.log(_of_state(jnp.asarray(probability), state)))


def brier_score(probability: ArrayLike, state: ArrayLike) -> Array:
    """Mean squared distance between probabilities and the known state, summed over states: 0 to 2.

    Source: Brier (1950), Verification of forecasts expressed in terms of probability, Monthly Weather Review 78.
    """
    p = jnp.asarray(probability)
    return jnp.mean(jnp.sum(p**2, -1) - 2 * _of_state(p, state) + 1)


def expected_calibration_error(probability: ArrayLike, state: ArrayLike, bins: int = 10) -> Array:
    """Mean distance between the largest probability and how often it is right, in bins of equal width: 0 to 1.

    Chance alone makes it positive: n cells in b bins leave about √(b p (1 − p) / n) for perfect probabilities.

    Source: Naeini, Cooper & Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian binning, AAAI.
    """
    p = jnp.asarray(probability)
    top = p.max(-1)
    right = p.argmax(-1) == jnp.asarray(state)
    place = jnp.clip(jnp.ceil(top * bins).astype(int) - 1, 0, bins - 1)
    member = place[:, None] == jnp.arange(bins)
    return jnp.abs(((right - top)[:, None] * member).sum(0)).sum() / len(top)


def _of_state(values: Array, state: ArrayLike) -> Array:
    return jnp.take_along_axis(values, jnp.asarray(state)[:, None], axis=-1)[:, 0]
