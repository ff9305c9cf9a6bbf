"""The one shape in which every inference algorithm returns its result."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from numpyro.distributions import Distribution

from evidial_bayes import __version__
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision
from evidial_bayes.models.base import MeasurementModel, Params, Prepared

# Draws worked on at once; memory follows it, results do not.
BATCH = 64
PACKAGES = ("jax", "numpyro", "arviz")


def assemble_fit(
    rng_key: jax.Array,
    model: MeasurementModel,
    prepared: Prepared,
    panel: Panel,
    posterior: Mapping[str, np.ndarray],
    *,
    sample_stats: Mapping[str, np.ndarray],
    attrs: Mapping[str, Any],
    floats: Precision,
) -> xr.DataTree:
    """Label posterior draws and add what ArviZ needs to judge and compare them.

    Parameters
    ----------
    rng_key
        JAX random key, for effects that the model sums out and the posterior reports.
    model, prepared, panel
        What was fitted to what.
    posterior
        Draws by site, ``[chain, draw, *dims of the site]``.
    sample_stats
        Statistics of the algorithm by name, ``[chain, draw]``.
    attrs
        What else to record of the fit; values are stored as JSON.
    floats
        Precision of log likelihood and log prior.

    Returns
    -------
    xarray.DataTree
        ``posterior``, effects included; ``sample_stats``; ``log_likelihood`` with ``votes`` of every cell that has any,
        ``[chain, draw, voted_cell]``; ``log_prior`` by site; ``observed_data`` with the category ``vote`` of every
        vote; and ``constant_data`` with the cell and judge of every vote and the votes per cell. Attributes hold the
        model, its priors, the algorithm, the panel's hash and package versions.
    """
    voted = np.flatnonzero(panel.n_votes)
    dims = {**prepared.dims, **prepared.effects}
    with precision(floats):
        data = jax.tree.map(jnp.asarray, prepared.data)
        log_likelihood, log_prior, effects = _of_draws(rng_key, model, data, posterior)
    posterior = {**posterior, **effects}

    def dataset(variables: Mapping[str, tuple[tuple[str, ...], np.ndarray]], **labels: pd.Index) -> xr.Dataset:
        out = xr.Dataset({name: (dims, values) for name, (dims, values) in variables.items()})
        ranges = {dim: np.arange(out.sizes[dim]) for dim in ("chain", "draw") if dim in out.sizes}
        known = {**ranges, **prepared.coords, **labels}
        return out.assign_coords({dim: np.asarray(index) for dim, index in known.items() if dim in out.sizes})

    draw = ("chain", "draw")
    tree = xr.DataTree.from_dict(
        {
            "posterior": dataset({name: ((*draw, *dims[name]), values) for name, values in posterior.items()}),
            "sample_stats": dataset({name: (draw, values) for name, values in sample_stats.items()}),
            "log_likelihood": dataset(
                {"votes": ((*draw, "voted_cell"), log_likelihood[..., prepared.pattern[voted]])},
                voted_cell=panel.coords["cell"][voted],
            ),
            "log_prior": dataset({name: (draw, values) for name, values in log_prior.items()}),
            "observed_data": dataset({"vote": (("vote_id",), panel.vote_category)}),
            "constant_data": dataset(
                {
                    "vote_cell": (("vote_id",), panel.vote_cell),
                    "vote_judge": (("vote_id",), panel.vote_judge),
                    "n_votes": (("cell",), panel.n_votes),
                },
                cell=panel.coords["cell"],
            ),
        }
    )
    tree.attrs = {
        "model": json.dumps(describe(model)),
        "panel_hash": panel.hash,
        "codebook": panel.codebook.name,
        "versions": json.dumps({"evidial-bayes": __version__, **{name: version(name) for name in PACKAGES}}),
        **{name: value if isinstance(value, str) else json.dumps(value) for name, value in attrs.items()},
    }
    return tree


def describe(part: object) -> Any:
    """Read a model, prior or setting as plain values, for records and comparison."""
    if isinstance(part, Distribution):
        arguments = {name: describe(getattr(part, name)) for name in type(part).arg_constraints}
        return {"type": type(part).__name__, **arguments}
    if is_dataclass(part) and not isinstance(part, type):
        return {"type": type(part).__name__, **{f.name: describe(getattr(part, f.name)) for f in fields(part)}}
    if isinstance(part, np.ndarray | np.generic | jax.Array):
        return np.asarray(part).tolist()
    return part


def stacked_posterior(fit: xr.DataTree) -> dict[str, np.ndarray]:
    """Posterior draws by site with chains laid end to end: ``[draw, *dims of the site]``."""
    return {
        str(name): values.to_numpy().reshape(-1, *values.shape[2:])
        for name, values in fit["posterior"].dataset.data_vars.items()
    }


def _of_draws(
    rng_key: jax.Array, model: MeasurementModel, data: Any, posterior: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Log likelihood ``[chain, draw, pattern]``, log prior ``[chain, draw]`` and effects by site, of all draws."""
    chains, draws = next(iter(posterior.values())).shape[:2]
    flat = {name: jnp.asarray(x).reshape(chains * draws, *x.shape[2:]) for name, x in posterior.items()}
    found = _of_each_draw(jax.random.split(rng_key, chains * draws), model, data, flat)
    log_likelihood, log_prior, effects = jax.tree.map(
        lambda x: np.asarray(x).reshape(chains, draws, *x.shape[1:]), found
    )
    return log_likelihood, log_prior, effects


@jax.jit
def _of_each_draw(
    keys: jax.Array, model: MeasurementModel, data: Any, params: Params
) -> tuple[jax.Array, dict[str, jax.Array], dict[str, jax.Array]]:
    def one(key_and_params: tuple[jax.Array, Params]) -> tuple[jax.Array, dict[str, jax.Array], dict[str, jax.Array]]:
        key, drawn = key_and_params
        effects = model.draw_effects(key, drawn, data)
        return model.log_likelihood({**drawn, **effects}, data), model.log_prior(drawn, data), effects

    return jax.lax.map(one, (keys, params), batch_size=BATCH)
