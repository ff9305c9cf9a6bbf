"""Numbers of cells by votes and covariates, over which a likelihood is two matrix products."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from evidial_bayes.data.patterns import Patterns

# A table of all votes by all covariates is laid out while it has at most so many times as many entries as patterns.
MOST_EMPTY = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Tally:
    """Numbers of cells of a panel whose cells are independent given the parameters.

    Parameters
    ----------
    unknown
        Float ``[vote_pattern, design_row]``: cells whose state is not known.
    known, constructed
        Float ``[vote_pattern, state]``: cells whose state is known, found so or made so.
    found
        Float ``[design_row, state]``: cells whose state is known and was not made so, which prevalence explains.
    """

    unknown: np.ndarray
    known: np.ndarray
    constructed: np.ndarray
    found: np.ndarray


def tally(patterns: Patterns, n_states: int) -> Tally | None:
    """Count the cells; None where the table of votes by covariates would be mostly empty."""
    n_votes, n_rows = len(patterns.votes), len(patterns.design)
    if n_votes * n_rows > MOST_EMPTY * len(patterns.count):
        return None
    unknown = patterns.known < 0
    found, made = ~unknown & ~patterns.constructed, ~unknown & patterns.constructed

    def count(which: np.ndarray, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        table = np.zeros(shape)
        np.add.at(table, (row[which], column[which]), patterns.count[which])
        return table

    return Tally(
        unknown=count(unknown, patterns.vote_pattern, patterns.design_row, (n_votes, n_rows)),
        known=count(found, patterns.vote_pattern, patterns.known, (n_votes, n_states)),
        constructed=count(made, patterns.vote_pattern, patterns.known, (n_votes, n_states)),
        found=count(found, patterns.design_row, patterns.known, (n_rows, n_states)),
    )


def log_likelihood_of(
    cells: Tally, log_f: Array, log_pi: Array, unlabelled_weight: ArrayLike, *, constructed: bool
) -> Array:
    """Log probability of all votes.

    Parameters
    ----------
    cells
        Numbers of cells.
    log_f
        Log probability of the votes given the state, ``[vote_pattern, state]``.
    log_pi
        Log prevalence, ``[design_row, state]``.
    unlabelled_weight
        Weight of cells whose state is not known.
    constructed
        Whether cells whose state was made count here.

    Returns
    -------
    Array
        A scalar.
    """
    top = jax.lax.stop_gradient(log_f.max(1, keepdims=True))
    mixed = jnp.exp(log_f - top) @ jnp.exp(log_pi).T
    # No smaller than the smallest number: a state so rare that it underflows must not make the sum NaN.
    log_mixed = jnp.log(mixed + jnp.finfo(mixed.dtype).tiny) + top
    told = cells.known + cells.constructed if constructed else jnp.asarray(cells.known)
    of_known = jnp.vdot(told, log_f) + jnp.vdot(jnp.asarray(cells.found), log_pi)
    return jnp.asarray(unlabelled_weight * jnp.vdot(jnp.asarray(cells.unknown), log_mixed) + of_known)
