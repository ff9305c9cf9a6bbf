"""Joint probability of a cell's votes and its state, at each node of its participant's effect."""

import jax
import jax.numpy as jnp
from jax import Array

from evidial_bayes.models.base import Params
from evidial_bayes.models.latent_class_data import LatentClassData
from evidial_bayes.models.priors import inside
from evidial_bayes.models.quadrature import Quadrature
from evidial_bayes.models.votes_given_state import Structure, log_votes_given_state


def log_joint(structure: Structure, params: Params, data: LatentClassData) -> Array:
    """Log probability of votes and state: ``[pattern, state, participant_node]``, −∞ for states that are ruled out."""
    patterns = data.patterns
    log_f = log_votes_given_state(structure, log_emission_by_reader(params), params, data)[patterns.vote_pattern]
    log_pi = jnp.where(patterns.constructed[:, None], 0.0, log_prevalence(params, data))
    possible = (patterns.known[:, None] < 0) | (patterns.known[:, None] == jnp.arange(log_f.shape[1]))
    return jnp.where(possible[..., None], log_pi[..., None] + log_f, -jnp.inf)


def log_prevalence(params: Params, data: LatentClassData) -> Array:
    """Log prevalence of the states at a pattern's covariates: ``[pattern, state]``."""
    return log_prevalence_by_row(params, data)[data.patterns.design_row]


def log_prevalence_by_row(params: Params, data: LatentClassData) -> Array:
    """Log prevalence of the states at each distinct row of the covariates: ``[design_row, state]``."""
    logits = jnp.log(inside(params["prevalence"])) + jnp.zeros((len(data.patterns.design), 1))
    if "slope" in params:
        logits = logits + data.patterns.design @ params["slope"].T
    return jax.nn.log_softmax(logits, axis=-1)


def log_emission_by_reader(params: Params) -> Array:
    """Log emissions ``[reader, state, category]``."""
    emission = params["emission"]
    return jnp.log(inside(emission)).reshape(-1, *emission.shape[-2:])


def by_participant(quadrature: Quadrature, log_f: Array, weight: Array, params: Params, data: LatentClassData) -> Array:
    """Log probability of each participant's votes together with each node of its effect.

    Parameters
    ----------
    quadrature
        Rule for the participant's effect.
    log_f
        Log probability of a cell's votes at each node, ``[pattern, node]``.
    weight
        Weight of each pattern, ``[pattern]``.
    params, data
        Parameters and votes.

    Returns
    -------
    Array
        ``[participant, node]``.
    """
    _, log_weight = quadrature(params["participant_sigma"])
    return jax.ops.segment_sum(weight[:, None] * log_f, data.patterns.unit, data.n_units) + log_weight


def participant_node(quadrature: Quadrature, params: Params, data: LatentClassData) -> Array:
    """Position of the effect of each pattern's participant among the nodes, from which it was drawn: ``[pattern]``."""
    nodes, _ = quadrature(params["participant_sigma"])
    return jnp.abs(params["participant_effect"][:, None] - nodes).argmin(-1)[data.patterns.unit]
