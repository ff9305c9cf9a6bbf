"""How an effect that judges share enters their emissions.

``e_j(y | k, b) = softmax_y( log e_jky + λ_jk · b · h_ky )`` with the logit link; with the probit link, for two
categories, ``e_j(1 | k, b) = Φ( Φ⁻¹(e_jk1) + λ_jk · b · (h_k1 − h_k0) )``.

Sources: EviDial (arXiv 2610.27541) §3.3 and App. F; Qu, Tan & Kutner (1996), Biometrics 52; Beath (2017), randomLCA,
JSS 81(13).
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from evidial_bayes.models.emission.base import Link, log_emission_of, predictor_of
from evidial_bayes.models.quadrature import Quadrature

type Dependence = Literal["none", "clarity", "severity"]
type Loading = Literal["shared", "state", "judge"]


def scores(dependence: Dependence, reads: ArrayLike) -> Array:
    """Give what one unit of the effect adds to the log of each emission, h: ``[state, category]``.

    ``clarity``: one for the category that the state reads as. ``severity``: categories in their order, a step of one
    between neighbours, centred; the same in every state.
    """
    reads = jnp.asarray(reads)
    if dependence == "clarity":
        return reads
    n_categories = reads.shape[1]
    return jnp.broadcast_to(jnp.arange(n_categories) - (n_categories - 1) / 2, reads.shape)


def levels(dependence: Dependence, reads: ArrayLike) -> tuple[Array, Array]:
    """Distinct scores ``[level]``, and whether a category has one of them in a state: ``[state, category, level]``."""
    h = scores(dependence, reads)
    if dependence == "clarity":
        return jnp.arange(2.0), jnp.stack([1 - h, h], axis=-1)
    return h[0], jnp.broadcast_to(jnp.eye(h.shape[1]), (*h.shape, h.shape[1]))


def shift(log_emission: Array, effect: Array, h: Array, link: Link) -> Array:
    """Log emissions under an effect.

    Parameters
    ----------
    log_emission
        ``[reader, state, category]`` at effect zero.
    effect
        Loading times effect, ``[reader or 1, state or 1, node]``.
    h
        Scores ``[state, category]``.
    link
        Scale on which the effect is added.

    Returns
    -------
    Array
        ``[reader, state, node, category]``.
    """
    if link == "probit":
        step = (h[:, 1] - h[:, 0])[:, None]
        return log_emission_of(predictor_of(log_emission, link)[..., None] + step * effect, link)
    return jax.nn.log_softmax(log_emission[:, :, None, :] + effect[..., None] * h[:, None, :], axis=-1)


def effect_nodes(quadrature: Quadrature, loading: Loading, sigma: Array, n_strata: int) -> tuple[Array, Array]:
    """Nodes of a cell effect times its loadings, ``[reader or 1, state or 1, node]``, and log weights ``[node]``.

    A shared loading is the effect's standard deviation, which a grid that does not scale needs to know; several
    loadings multiply an effect of variance one.
    """
    if loading == "shared":
        b, log_weight = quadrature(sigma)
        return b[None, None], log_weight
    b, log_weight = quadrature(jnp.ones(()))
    if loading == "state":
        return sigma[None, :, None] * b, log_weight
    return jnp.tile(sigma, n_strata)[:, None, None] * b, log_weight
