"""The effect of a cell summed out through the few numbers by which its votes depend on it.

With the logit link an effect tilts emissions exponentially. With ``t = λ_k b`` the product over a cell's votes is

    Π_i e_{j_i}(y_i | k) exp(t h_{k y_i}) / Z_{j_i k}(t) = [Π_i e_{j_i}(y_i | k)] · exp(t S_k) / Π_i Z_{j_i k}(t),

where ``Z_jk(t) = Σ_y e_j(y | k) exp(t h_ky)`` and the score ``S_k = Σ_i h_{k y_i}`` is sufficient for ``t``. The
integral over b is one of the score and of who voted, which many patterns share; what differs between them is one matrix
product.

Source: Barndorff-Nielsen (1978), Information and Exponential Families, on exponential tilting and sufficiency.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import logsumexp

from evidial_bayes.data.patterns import Patterns
from evidial_bayes.models.priors import inside
from evidial_bayes.models.vote_product import Space

# All scores are crossed with all sets of voters while that gives at most so many times as many pairs as there are.
MOST_EMPTY = 8
# Exponents of double precision end at 709.
LARGEST = 600.0


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["voted", "score", "voters_of", "score_of", "place"],
    meta_fields=["crossed"],
)
@dataclass(frozen=True, eq=False)
class Tilts:
    """Distinct pairs of a set of voters and a score.

    Parameters
    ----------
    voted
        Float ``[voters, reader]``: number of votes of each reader.
    score
        Float ``[score]``: sums of the votes' scores.
    voters_of, score_of
        Int ``[pair]``: positions in the two.
    place
        Int ``[vote_pattern, state]``: position in the flattened table ``[pair, state]``.
    crossed
        Whether the pairs are all sets of voters by all scores, in order.
    """

    voted: np.ndarray
    score: np.ndarray
    voters_of: np.ndarray
    score_of: np.ndarray
    place: np.ndarray
    crossed: bool


def tilts(patterns: Patterns, h: np.ndarray) -> Tilts:
    """Find the distinct pairs.

    Parameters
    ----------
    patterns
        Votes.
    h
        Scores of the categories, ``[state, category]``.
    """
    voted, voters = np.unique(patterns.votes.sum(-1), axis=0, return_inverse=True)
    summed = patterns.votes.sum(1) @ h.T
    score, at = np.unique(summed, return_inverse=True)
    at = at.reshape(summed.shape)
    code = voters.reshape(-1, 1) * len(score) + at
    pairs, row = np.unique(code, return_inverse=True)
    if crossed := len(voted) * len(score) <= MOST_EMPTY * len(pairs):
        pairs, row = np.arange(len(voted) * len(score)), code
    return Tilts(
        voted=voted,
        score=score,
        voters_of=pairs // len(score),
        score_of=pairs % len(score),
        place=row.reshape(code.shape) * len(h) + np.arange(len(h)),
        crossed=crossed,
    )


def log_tilted(
    tilted: Tilts,
    log_emission: Array,
    effect: Array,
    log_weight: Array,
    levels: tuple[Array, Array],
    n_outer: int,
    space: Space,
) -> Array:
    """Log of the average of ``exp(t S_k) / Π Z_jk(t)`` over the cell's effect, for every vote pattern.

    Parameters
    ----------
    tilted
        Sets of voters and scores.
    log_emission
        ``[reader, state, category]`` at effect zero.
    effect
        Loading times effect, ``[state or 1, node]``; outer nodes, those of the participant, vary fastest.
    log_weight
        Log weights of the cell effect, ``[cell_node]``.
    levels
        Distinct scores of the categories, and which category has which.
    n_outer
        Number of outer nodes, which stay.
    space
        Where the average is taken.

    Returns
    -------
    Array
        ``[vote_pattern, state, outer_node]``.
    """
    # Double precision has room for the products of a few judges' tilts.
    roomy = space == "probability" and log_emission.dtype == jnp.float64
    average = _by_products if roomy and tilted.crossed and n_outer == 1 else _by_logs
    # Probability of each score in a state, which is all that normalisers know of an emission.
    score, member = levels
    mass = jnp.einsum("rkc,kcl->rkl", jnp.exp(log_emission), member)
    table = average(tilted, mass, effect, log_weight, score)
    return table.reshape(-1, n_outer)[jnp.asarray(tilted.place)]


def _by_products(tilted: Tilts, mass: Array, effect: Array, log_weight: Array, score: Array) -> Array:
    """Averages of every pair in every state, ``[voters, score, state]``, from few transcendental functions."""
    most = jnp.maximum(jnp.abs(score).max() * jnp.asarray(tilted.voted).sum(-1).max(), 1)
    # Effects beyond take every emission to its limit, to more digits than there are; products would overflow.
    effect = jnp.clip(effect, -LARGEST / most, LARGEST / most)
    tilt = jnp.exp(score[:, None] * effect[:, None, :])
    inverse = 1 / (mass[..., None] * tilt).sum(2)
    spent = jnp.exp(log_weight)
    for reader, share in enumerate(inverse):
        spent = spent * jnp.where(jnp.asarray(tilted.voted)[:, reader, None, None] > 0, share, 1.0)
    gained = jnp.exp(jnp.asarray(tilted.score)[:, None, None] * effect)
    if len(effect) == 1:
        return jnp.log(jnp.einsum("mkn,sn->msk", spent, gained[:, 0]))
    return jnp.log(jnp.einsum("mkn,skn->msk", spent, gained))


def _by_logs(tilted: Tilts, mass: Array, effect: Array, log_weight: Array, score: Array) -> Array:
    """Averages of every pair in every state, ``[pair, state, outer_node]``, for any number of votes."""
    log_mass = jnp.log(inside(mass))
    log_z = logsumexp(log_mass[..., None] + score[:, None] * effect[:, None, :], axis=2)
    n_readers, n_states, n_nodes = log_z.shape
    spent = (jnp.asarray(tilted.voted) @ log_z.reshape(n_readers, -1)).reshape(-1, n_states, n_nodes)
    summed = jnp.asarray(tilted.score)[jnp.asarray(tilted.score_of)]
    log_ratio = summed[:, None, None] * effect - spent[jnp.asarray(tilted.voters_of)]
    by_node = log_ratio.reshape(*log_ratio.shape[:2], len(log_weight), -1)
    return logsumexp(by_node + log_weight[:, None], axis=2)
