"""The posterior density as inference algorithms see it: a function of one flat vector of unconstrained coordinates."""

from typing import Any

import jax
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from evidial_bayes.models.base import MeasurementModel, Params

# Draws turned into sites at once; memory follows it, results do not.
BATCH = 64


@jax.jit
def model_centre(model: MeasurementModel, data: Any) -> Params:
    """Unconstrained coordinates of the model's own starting values, by site; their order is that of flat vectors."""
    return unconstrain_fn(model, (data,), {}, model.initial(data))


def log_density(model: MeasurementModel, data: Any, centre: Params, x: Array) -> Array:
    """Log of prior times likelihood as a density of unconstrained coordinates ``[coordinate]``, Jacobians included."""
    return -potential_energy(model, (data,), {}, ravel_pytree(centre)[1](x))


@jax.jit
def value_and_gradient(model: MeasurementModel, data: Any, centre: Params, x: Array) -> tuple[Array, Array]:
    """`log_density` and its gradient by coordinate; compiled once for all values of priors."""
    return jax.value_and_grad(lambda x: log_density(model, data, centre, x))(x)


@jax.jit
def log_densities(model: MeasurementModel, data: Any, centre: Params, x: Array) -> Array:
    """`log_density` of many points ``[point, coordinate]``."""
    return jax.lax.map(lambda one: log_density(model, data, centre, one), x, batch_size=BATCH)


def sites_at(model: MeasurementModel, data: Any, centre: Params, x: Array) -> Params:
    """Sites of the program, deterministic ones included, at one point."""
    return constrain_fn(model, (data,), {}, ravel_pytree(centre)[1](x), return_deterministic=True)


@jax.jit
def constrain(model: MeasurementModel, data: Any, centre: Params, x: Array) -> Params:
    """Sites at draws ``[chain, draw, coordinate]``: ``[chain, draw, ...]`` each."""
    chains, draws = x.shape[:2]
    sites = jax.lax.map(lambda one: sites_at(model, data, centre, one), x.reshape(chains * draws, -1), batch_size=BATCH)
    return jax.tree.map(lambda site: site.reshape(chains, draws, *site.shape[1:]), sites)
