"""Weights of participants: which people might have been in the sample."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

Weights = Literal["bayesian", "multinomial"]


@partial(jax.jit, static_argnames=("n_draws", "n_participants", "weights"))
def participant_weights(rng_key: Array, n_draws: int, n_participants: int, weights: Weights) -> Array:
    """Draws of participant weights, each row summing to the number of participants.

    Participants are the unit because cells of one person go together; every cell carries its participant's
    weight, and all systems share the weights of a draw, so that their differences are paired.

    Parameters
    ----------
    rng_key
        JAX random key.
    n_draws
        Number of draws.
    n_participants
        Number of participants P.
    weights
        ``bayesian``: P · Dirichlet(1, …, 1), all weights positive, so that no ratio becomes undefined by
        resampling. ``multinomial``: how often each participant is drawn in P draws with replacement, the
        classical bootstrap.

    Returns
    -------
    jax.Array
        Float ``[draw, participant]``.

    Notes
    -----
    Sources: Rubin (1981), The Bayesian bootstrap; Efron (1979), Bootstrap methods.
    """
    shape = (n_draws, n_participants)
    if weights == "bayesian":
        gaps = jax.random.exponential(rng_key, shape)  # normalised exponentials are Dirichlet(1, …, 1)
        return gaps / gaps.mean(1, keepdims=True)
    drawn = jax.random.randint(rng_key, shape, 0, n_participants)
    rows = jnp.arange(n_draws)[:, None]
    return jnp.zeros(shape).at[rows, drawn].add(1.0)
