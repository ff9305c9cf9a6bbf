"""Calibrating a posterior on cells of known state that its fit did not see."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jax import Array, lax

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision
from evidial_bayes.models.base import MeasurementModel, Params, Prepared
from evidial_bayes.models.priors import inside
from evidial_bayes.reference.base import Reference
from evidial_bayes.reference.calibration import Calibration
from evidial_bayes.reference.elliptical_slice import elliptical_slice_step
from evidial_bayes.reference.voting import count_votes

# Share of a vote share that is spread evenly, so that a state which nobody votes for stays possible.
SMOOTHING = 0.02
# Draws of a calibrated reference, however few its fit has: a posterior mode has one.
LEAST_DRAWS = 400


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibrated reference, and what was learned of the calibration.

    Parameters
    ----------
    reference
        Probabilities of the states; known cells have all probability on their state.
    parameters
        Draws of the calibration's parameters, ``[chain, draw, ...]``.
    """

    reference: Reference
    parameters: xr.Dataset


def calibrate(
    rng_key: Array,
    calibration: Calibration,
    reference: Reference,
    fit: xr.DataTree,
    model: MeasurementModel,
    panel: Panel,
    *,
    steps: int = 10,
    warmup: int = 500,
    floats: Precision = "float64",
) -> Calibrated:
    """Probability of every cell's state, calibrated on the panel's sampled known cells.

    For every posterior draw θ of the model the calibration's parameters φ are drawn from their posterior given θ and
    the known states, by a Markov chain that is carried on from draw to draw. The known states inform φ alone, and not
    θ (a cut posterior): that the fit did not see them is what makes them evidence about how far it can be trusted.

    Parameters
    ----------
    rng_key
        JAX random key.
    calibration
        Kind of calibration.
    reference
        The reference of the fit, every draw or an even selection of them.
    fit
        Fit of ``model`` to ``panel.hidden()``.
    model
        What was fitted.
    panel
        The panel with its known states.
    steps, warmup
        Steps of the chain for each draw of θ, and before the first.
    floats
        Precision of the arithmetic.

    Returns
    -------
    Calibrated
        The reference ``calibrated``, with as many draws as ``reference`` and at least 400, and the parameters.

    Raises
    ------
    InputError
        The fit saw the known states, or is of another panel.

    Notes
    -----
    Source: Plummer (2015), Cuts in Bayesian graphical models, Statistics and Computing 25; Murray, Adams & MacKay
    (2010), Elliptical slice sampling, AISTATS.
    """
    hidden = panel.hidden()
    if fit.attrs.get("panel_hash") != hidden.hash:
        raise InputError(
            "The fit is not of this panel with its sampled known states hidden: a calibration learns from cells that "
            "the fit did not see as known; fit panel.hidden()."
        )
    prepared = model.prepare(hidden)
    n_chains = fit["posterior"].sizes["chain"]
    draws = _positions(fit, reference)
    n_chains = n_chains if len(draws) % n_chains == 0 else 1
    kinds, names = _sources(calibration, panel)
    known = np.flatnonzero((panel.known >= 0) & ~panel.constructed & (panel.n_votes > 0))
    stacked = {
        str(name): values.to_numpy().reshape(-1, *values.shape[2:])[draws]
        for name, values in fit["posterior"].dataset.data_vars.items()
    }
    with precision(floats):
        chain = _Chain(
            data=jax.tree.map(jnp.asarray, prepared.data),
            shares={name: jnp.asarray(share) for name, share in _shares(hidden, prepared).items()},
            pattern=jnp.asarray(prepared.pattern[known]),
            state=jnp.asarray(panel.known[known]),
        )
        params = {name: jnp.asarray(x).reshape(n_chains, -1, *x.shape[1:]) for name, x in stacked.items()}
        keys = jax.random.split(rng_key, n_chains)
        parameters, conditional = _run(kinds, steps, warmup, calibration, model, chain, params, keys)
    dims, n_states = calibration.dims(), len(panel.codebook.states)
    coords = {
        "source": np.asarray(names),
        "state": np.asarray(panel.codebook.states),
        "apparent_state": np.asarray(panel.codebook.states),
    }
    dataset = xr.Dataset({name: (("chain", "draw", *dims[name]), np.asarray(x)) for name, x in parameters.items()})
    conditional = np.asarray(conditional).reshape(len(draws), -1, n_states)
    # A known cell is known: it leaves its pattern for one that has all probability on its state.
    certain = np.broadcast_to(np.eye(n_states), (len(draws), n_states, n_states)).astype(conditional.dtype)
    pattern = np.where(panel.known >= 0, conditional.shape[1] + panel.known, prepared.pattern)
    return Calibrated(
        reference=replace(
            reference,
            name="calibrated",
            conditional=np.concatenate([conditional, certain], axis=1),
            pattern=pattern,
            resolved=reference.resolved | (panel.known >= 0),
        ),
        parameters=dataset.assign_coords({dim: values for dim, values in coords.items() if dim in dataset.dims}),
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _Chain:
    """What the chain needs besides θ: data of the model, vote shares, and pattern and state of every known cell."""

    data: Any
    shares: dict[str, Array]
    pattern: Array
    state: Array


@partial(jax.jit, static_argnames=("kinds", "steps", "warmup"))
def _run(
    kinds: tuple[str, ...],
    steps: int,
    warmup: int,
    calibration: Calibration,
    model: MeasurementModel,
    chain: _Chain,
    params: Params,
    keys: Array,
) -> tuple[dict[str, Array], Array]:
    """Parameters ``[chain, draw, ...]`` and state probabilities ``[chain, draw, pattern, state]``."""
    n_states = next(iter(chain.shares.values())).shape[-1]
    size = calibration.size(kinds, n_states)

    def log_likelihood(z: Array, sources: Array) -> Array:
        log_p = calibration.log_probabilities(calibration.parameters(z, kinds, n_states), sources)
        return jnp.take_along_axis(log_p, chain.state[:, None], axis=1).sum()

    def walk(key: Array, z: Array, sources: Array, n: int) -> Array:
        at_known = sources[:, chain.pattern]
        for_known = partial(log_likelihood, sources=at_known)
        return lax.fori_loop(0, n, lambda i, z: elliptical_slice_step(jax.random.fold_in(key, i), z, for_known), z)

    def one_chain(params: Params, key: Array) -> tuple[dict[str, Array], Array]:
        first = jax.tree.map(lambda x: x[0], params)
        warm_key, start_key, key = jax.random.split(key, 3)
        start = jax.random.normal(start_key, (size,))
        start = walk(warm_key, start, _of_draw(kinds, model, chain, first), warmup)

        def one(z: Array, now: tuple[Params, Array]) -> tuple[Array, tuple[dict[str, Array], Array]]:
            drawn, key = now
            sources = _of_draw(kinds, model, chain, drawn)
            z = walk(key, z, sources, steps)
            found = calibration.parameters(z, kinds, n_states)
            return z, (found, jnp.exp(calibration.log_probabilities(found, sources)))

        n_draws = jax.tree.leaves(params)[0].shape[0]
        return lax.scan(one, start, (params, jax.random.split(key, n_draws)))[1]

    return jax.lax.map(lambda both: one_chain(*both), (params, keys))


def _of_draw(kinds: tuple[str, ...], model: MeasurementModel, chain: _Chain, params: Params) -> Array:
    """Log probabilities by source at one posterior draw: ``[source, pattern, state]``."""
    values = []
    if "families" in kinds or "prevalence" in kinds:
        prevalence, by_family = model.log_evidence(params, chain.data)
    for place, kind in enumerate(kinds):
        if kind == "posterior":
            values.append(jnp.log(inside(model.state_probabilities(params, chain.data))))
        elif kind == "prevalence":
            values.append(prevalence)
        elif kind == "families":
            values.append(by_family[kinds[:place].count(kind)])
        else:
            values.append(jnp.log(chain.shares[kind]))
    return jax.nn.log_softmax(jnp.stack(values), axis=-1)


def _sources(calibration: Calibration, panel: Panel) -> tuple[tuple[str, ...], list[str]]:
    """Kind and name of every source: ``families`` stands for one a family."""
    families = panel.judges.loc[panel.coords["judge"], "judge_family"].drop_duplicates()
    kinds: list[str] = []
    names: list[str] = []
    for kind in calibration.kinds:
        of_kind = [str(family) for family in families] if kind == "families" else [kind]
        kinds += [kind] * len(of_kind)
        names += of_kind
    return tuple(kinds), names


def _shares(panel: Panel, prepared: Prepared) -> dict[str, np.ndarray]:
    """Smoothed vote shares of the patterns, ``[pattern, state]``: of all votes, and the mean of the families'."""
    family = pd.factorize(panel.judges.loc[panel.coords["judge"], "judge_family"])[0]
    _, first = np.unique(prepared.pattern, return_index=True)
    counts = count_votes(panel, family)[:, first]
    return {
        "vote_share": _smoothed(counts.sum(0), panel),
        "family_shares": np.mean([_smoothed(of_family, panel) for of_family in counts], axis=0),
    }


def _smoothed(counts: np.ndarray, panel: Panel) -> np.ndarray:
    reading = panel.codebook.reading
    share = counts[:, reading] / np.bincount(reading)[reading]
    total, n_states = share.sum(1, keepdims=True), share.shape[1]
    share = np.where(total > 0, share / np.where(total > 0, total, 1), 1 / n_states)
    return (1 - SMOOTHING) * share + SMOOTHING / n_states


def _positions(fit: xr.DataTree, reference: Reference) -> np.ndarray:
    """Positions of the reference's draws among those of the fit; a mode is repeated, for the calibration varies."""
    total = fit["posterior"].sizes["chain"] * fit["posterior"].sizes["draw"]
    draws = max(len(reference.conditional), LEAST_DRAWS)
    return np.linspace(0, total, draws, endpoint=False).astype(int)
