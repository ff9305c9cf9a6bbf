"""Probability of a cell's votes given its state, with every effect but the participant's summed out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce

import jax.numpy as jnp
from jax import Array

from evidial_bayes.models.base import Params
from evidial_bayes.models.dependence import Dependence, Loading, effect_nodes, levels, scores, shift
from evidial_bayes.models.emission.base import Link
from evidial_bayes.models.latent_class_data import LatentClassData
from evidial_bayes.models.priors import inside
from evidial_bayes.models.quadrature import Quadrature
from evidial_bayes.models.tilted import Tilts, log_tilted
from evidial_bayes.models.vote_groups import VoteGroup
from evidial_bayes.models.vote_product import Space, average, product_of_readers, read_through, times, to_log


@dataclass(frozen=True)
class Structure:
    """Which effects there are is said by the parameters that are given; this says how they enter."""

    dependence: Dependence
    loading: Loading
    link: Link
    quadrature: Quadrature


def log_votes_given_state(structure: Structure, log_emission: Array, params: Params, data: LatentClassData) -> Array:
    """Log probability of all votes of a cell given its state.

    Parameters
    ----------
    structure
        How effects enter.
    log_emission
        ``[reader, state, category]`` at effect zero.
    params
        ``sigma``, ``family_sigma``, ``participant_sigma``, ``family_reading`` and ``misreading``, those that the model
        has.
    data
        Votes.

    Returns
    -------
    Array
        ``[vote_pattern, state, participant_node]``; one node where there is no participant effect.
    """
    nodes = _Nodes.of(structure, params, log_emission.shape[0])
    if data.tilts is not None:
        return _tilted(structure, log_emission, params, data, data.tilts, nodes)
    if "family_sigma" in params or "family_reading" in params:
        families = (_family(structure, log_emission, params, data, group, nodes)[group.row] for group in data.groups)
        values = reduce(partial(times, space=data.space), families)
    else:
        values = product_of_readers(
            data.patterns.votes, _shifted(structure, log_emission, data, nodes.effect), data.space
        )
    return to_log(_read(nodes.sum_out(values, data.space), params, data.space), data.space)


def log_votes_by_family(structure: Structure, log_emission: Array, params: Params, data: LatentClassData) -> Array:
    """Log probability of each family's votes on a cell given its state, as if no other family had voted.

    Families share the cell effect, so these do not add up to the log probability of all votes.

    Returns
    -------
    Array
        ``[judge_family, vote_pattern, state]``; other arguments as in `log_votes_given_state`.
    """
    nodes = _Nodes.of(structure, params, log_emission.shape[0])
    families = []
    for group in data.groups:
        values = _family(structure, log_emission, params, data, group, nodes)
        values = average(_read(nodes.sum_out(values, data.space), params, data.space), nodes.participant, data.space)
        families.append(to_log(values, data.space)[group.row])
    return jnp.stack(families)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Nodes of cell effect × participant effect: their sum times loadings ``[reader or 1, state or 1, node]``."""

    effect: Array | None
    cell: Array
    participant: Array

    @classmethod
    def of(cls, structure: Structure, params: Params, n_readers: int) -> "_Nodes":
        """Lay out the nodes; participants' vary fastest."""
        one = jnp.zeros(1)
        if structure.dependence == "none":
            return cls(None, one, one)
        sigma = params["sigma"]
        n_strata = n_readers // len(sigma) if structure.loading == "judge" else 1
        effect, cell = effect_nodes(structure.quadrature, structure.loading, sigma, n_strata)
        if "participant_sigma" not in params:
            return cls(effect, cell, one)
        c, participant = structure.quadrature(params["participant_sigma"])
        return cls((effect[..., None] + c).reshape(*effect.shape[:2], -1), cell, participant)

    def sum_out(self, values: Array, space: Space) -> Array:
        """Sum the cell effect out: ``[..., node]`` becomes ``[..., participant_node]``."""
        split = values.reshape(*values.shape[:-1], -1, len(self.participant))
        return average(jnp.swapaxes(split, -1, -2), self.cell, space)


def _tilted(
    structure: Structure, log_emission: Array, params: Params, data: LatentClassData, tilts: Tilts, nodes: _Nodes
) -> Array:
    """Log probability of all votes where the effect enters through a score: ``[vote_pattern, state, node]``."""
    votes = jnp.asarray(data.patterns.votes)
    table = jnp.swapaxes(log_emission, 1, 2).reshape(-1, log_emission.shape[1])
    values = (votes.reshape(len(votes), -1) @ table)[..., None]
    if nodes.effect is not None:
        values = values + log_tilted(
            tilts,
            log_emission,
            nodes.effect[0],
            nodes.cell,
            levels(structure.dependence, data.reads),
            len(nodes.participant),
            data.space,
        )
    return _read(values, params, "log")


def _family(
    structure: Structure, log_emission: Array, params: Params, data: LatentClassData, group: VoteGroup, nodes: _Nodes
) -> Array:
    """Probability of one family's votes at the nodes of what families share: ``[family_pattern, state, node]``."""
    log_emission = log_emission[group.readers]
    effect = nodes.effect
    if effect is not None and effect.shape[0] > 1:
        effect = effect[group.readers]
    if "family_reading" in params:
        seen = product_of_readers(group.votes, log_emission[:, :, None, :], data.space)
        log_matrix = jnp.log(inside(params["family_reading"][:, group.family]))
        return read_through(seen, _shifted_reading(structure, log_matrix, effect), data.space)
    if "family_sigma" not in params or effect is None:
        return product_of_readers(group.votes, _shifted(structure, log_emission, data, effect), data.space)
    c, log_weight = structure.quadrature(params["family_sigma"])
    effect = (effect[..., None] + c).reshape(*effect.shape[:2], -1)
    values = product_of_readers(group.votes, _shifted(structure, log_emission, data, effect), data.space)
    return average(values.reshape(*values.shape[:-1], -1, len(log_weight)), log_weight, data.space)


def _shifted(structure: Structure, log_emission: Array, data: LatentClassData, effect: Array | None) -> Array:
    if effect is None:
        return log_emission[:, :, None, :]
    return shift(log_emission, effect, scores(structure.dependence, data.reads), structure.link)


def _shifted_reading(structure: Structure, log_matrix: Array, effect: Array | None) -> Array:
    """Apply the cell effect to what a family reads: ``[state, apparent_state, node]``, states being the categories."""
    if effect is None:
        return log_matrix[..., None]
    h = scores(structure.dependence, jnp.eye(len(log_matrix)))
    return jnp.moveaxis(shift(log_matrix[None], effect, h, "logit")[0], -1, -2)


def _read(values: Array, params: Mapping[str, Array], space: Space) -> Array:
    """Let the panel as a whole misread states."""
    if "misreading" not in params:
        return values
    return read_through(values, jnp.log(inside(params["misreading"]))[..., None], space)
