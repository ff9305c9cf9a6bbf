"""The reference: what is believed about the state of every cell, and joint draws of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array, lax
from numpy.typing import NDArray

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError

BATCH = 64  # draws worked on at once: about a megabyte per thousand cells, whatever the number of draws
TOLERANCE = 1e-5  # slack on rows that must sum to one: wide enough for a posterior computed in float32


@dataclass(frozen=True, eq=False)
class Reference:
    """State probabilities of every cell, one set per parameter draw.

    Soft and hard references have this one shape: a hard one (strict plurality, people) is a single draw of
    one-hot rows. Cells that share a pattern share their probabilities, so the store grows with distinct vote
    patterns and not with cells.

    Parameters
    ----------
    name
        Short name used in tables, such as ``posterior``, ``plurality`` or ``vote_share``.
    codebook
        States, labels and which label each state supports.
    cells
        Index ``cell``: ids of the cells.
    conditional
        Float ``[draw, pattern, state]``: probability of each state given the votes and the parameters of the
        draw.
    pattern
        Int ``[cell]``: position of the cell's pattern in ``conditional``.
    resolved
        Bool ``[cell]``: whether the reference commits itself on the cell. Unresolved cells leave the
        denominators.
    n_votes
        Int ``[cell]``: number of valid votes behind the cell.

    Raises
    ------
    ValueError
        Arrays that do not fit each other, or rows of ``conditional`` that are not probabilities.
    """

    name: str
    codebook: Codebook
    cells: pd.Index
    conditional: NDArray[np.floating]
    pattern: NDArray[np.integer]
    resolved: NDArray[np.bool_]
    n_votes: NDArray[np.integer]

    def __post_init__(self) -> None:
        """Check that the arrays fit each other."""
        for fault in self._faults():
            raise ValueError(f"Reference '{self.name}': {fault}.")

    def _faults(self) -> Iterator[str]:
        states, n_cells = len(self.codebook.states), len(self.cells)
        if self.conditional.ndim != 3 or self.conditional.shape[-1] != states or 0 in self.conditional.shape:
            yield f"conditional must be [draw, pattern, state={states}], got {self.conditional.shape}"
        for field in ("pattern", "resolved", "n_votes"):
            if getattr(self, field).shape != (n_cells,):
                yield f"{field} must be [cell={n_cells}], got {getattr(self, field).shape}"
        if not self.cells.is_unique:
            yield f"cell '{self.cells[self.cells.duplicated()][0]}' appears more than once"
        if n_cells and not 0 <= self.pattern.min() <= self.pattern.max() < self.conditional.shape[1]:
            yield f"pattern must lie in 0..{self.conditional.shape[1] - 1}"
        if self.resolved.dtype != bool:
            yield f"resolved must be boolean, got {self.resolved.dtype}"
        # `not (… <= …)` also catches NaN.
        if not (self.conditional.min() >= 0 and np.abs(self.conditional.sum(-1) - 1).max() <= TOLERANCE):
            yield "rows of conditional must be non-negative and sum to one"

    @cached_property
    def probability(self) -> NDArray[np.float64]:
        """Probability of each state given the votes, averaged over parameters; float ``[cell, state]``."""
        return self.conditional.mean(0, dtype=np.float64)[self.pattern]

    @cached_property
    def map_state(self) -> NDArray[np.int8]:
        """Most probable state, the first one on ties; int8 ``[cell]``."""
        return self.probability.argmax(-1).astype(np.int8)

    @cached_property
    def entropy(self) -> NDArray[np.float64]:
        """Shannon entropy of ``probability`` in nats, 0 to log(number of states): ``[cell]``."""
        p = self.probability
        return -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1) + 0.0  # + 0.0: no negative zero in tables


def resolved_below(reference: Reference, max_entropy: float | None) -> Reference:
    """Leave cells unresolved whose averaged probabilities have a larger entropy, in nats; None changes nothing.

    Raises
    ------
    InputError
        The entropy is negative or no number.
    """
    if max_entropy is None:
        return reference
    if not 0 <= max_entropy < np.inf:
        raise InputError(f"reference.max_entropy: {max_entropy!r} is not usable; allowed: a number from 0 on, or null.")
    return replace(reference, resolved=reference.resolved & (reference.entropy <= max_entropy))


def draw_states(
    rng_key: Array,
    reference: Reference,
    cells: NDArray[np.integer],
    draws: NDArray[np.integer],
    *,
    states: bool,
    parameters: bool,
) -> NDArray[np.int8]:
    """Joint draws of the states of cells, with either source of uncertainty frozen on request.

    All cells of one row share the parameters of its draw, so they move together; given the parameters they
    are independent. Row and cell decide the random number, so a result does not depend on how the work is
    batched.

    ======  ==========  ===============================================================
    states  parameters  row d
    ======  ==========  ===============================================================
    on      on          Z ~ P(. | votes, parameters of draw d)
    on      off         Z ~ mean over draws of P(. | votes, parameters), independent
    off     on          most probable state under the parameters of draw d
    off     off         most probable state under the mean, the same in every row
    ======  ==========  ===============================================================

    Parameters
    ----------
    rng_key
        JAX random key; unused when ``states`` is off.
    reference
        Where the probabilities come from.
    cells
        Int ``[cell]``: positions in ``reference.cells``.
    draws
        Int ``[draw]``: positions on the draw axis of ``reference.conditional``, repeats allowed.
    states
        Draw the state given the parameters instead of taking the most probable one.
    parameters
        Let the parameters vary over draws instead of averaging over them.

    Returns
    -------
    numpy.ndarray
        int8 ``[draw, cell]``: positions in ``reference.codebook.states``.
    """
    if parameters:
        used, pattern = np.unique(reference.pattern[cells], return_inverse=True)
        conditional = reference.conditional[:, used]
    else:
        conditional, pattern = reference.probability[None, cells], np.arange(len(cells))
        draws = np.zeros_like(draws)
    if states:
        return np.asarray(_inverse_cdf(rng_key, conditional, pattern, draws))
    return conditional.argmax(-1).astype(np.int8)[draws][:, pattern]


@jax.jit
def _inverse_cdf(rng_key: Array, conditional: Array, pattern: Array, draws: Array) -> Array:
    """States by inverting each cell's cumulative probabilities at a uniform number; int8 ``[draw, cell]``."""

    def one(row: tuple[Array, Array]) -> Array:
        position, draw = row
        cumulative = jnp.cumsum(conditional[draw], axis=-1)
        level = jax.random.uniform(jax.random.fold_in(rng_key, position), pattern.shape)
        # Scaling by the total, not trusting it to be one, makes a state of probability zero impossible.
        level = level * cumulative[pattern, -1]
        passed = (level >= cumulative[pattern, k] for k in range(conditional.shape[-1] - 1))
        return sum((p.astype(jnp.int8) for p in passed), start=jnp.zeros(pattern.shape, jnp.int8))

    return lax.map(one, (jnp.arange(len(draws)), draws), batch_size=BATCH)
