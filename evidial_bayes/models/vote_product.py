"""Products over judges and averages over nodes, in the space of probabilities or of their logs.

Probabilities are fastest and safe for a few judges; logs never underflow. Values carry ``[..., state, node]``.
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.nn import logsumexp
from jax.typing import ArrayLike

type Space = Literal["probability", "log"]


def product_of_readers(votes: ArrayLike, log_emission: Array, space: Space) -> Array:
    """Probability of the votes of all readers at every node.

    Parameters
    ----------
    votes
        ``[vote_pattern, reader, category]``; in the space of probabilities at most one vote a reader.
    log_emission
        ``[reader, state, node, category]``.
    space
        Space of the result.

    Returns
    -------
    Array
        ``[vote_pattern, state, node]``.
    """
    votes = jnp.asarray(votes)
    n_patterns, n_readers, n_categories = votes.shape
    n_states, n_nodes = log_emission.shape[1:3]
    table = jnp.moveaxis(log_emission, -1, 1).reshape(n_readers, n_categories, n_states * n_nodes)
    if space == "log":
        product = votes.reshape(n_patterns, -1) @ table.reshape(n_readers * n_categories, -1)
    else:
        silent = 1.0 - votes.sum(-1)
        product = jnp.ones(())
        for j, probability in enumerate(jnp.exp(table)):
            product = product * (votes[:, j] @ probability + silent[:, j, None])
    return product.reshape(n_patterns, n_states, n_nodes)


def times(a: Array, b: Array, space: Space) -> Array:
    """Product of two values."""
    return a + b if space == "log" else a * b


def average(values: Array, log_weight: Array, space: Space) -> Array:
    """Weighted sum over the last axis."""
    if space == "log":
        return logsumexp(values + log_weight, axis=-1)
    return values @ jnp.exp(log_weight)


def read_through(values: Array, log_matrix: Array, space: Space) -> Array:
    """Mix apparent states into true ones at every node.

    Parameters
    ----------
    values
        ``[..., apparent_state, node or 1]``.
    log_matrix
        Log probability of each apparent state given the true one, ``[state, apparent_state, node or 1]``.
    space
        Space of values and result.

    Returns
    -------
    Array
        ``[..., state, node]``.
    """
    if space == "log":
        return logsumexp(values[..., None, :, :] + log_matrix, axis=-2)
    return (values[..., None, :, :] * jnp.exp(log_matrix)).sum(-2)


def to_log(values: Array, space: Space) -> Array:
    """Take the logs of values that are not logs yet."""
    return values if space == "log" else jnp.log(values)
