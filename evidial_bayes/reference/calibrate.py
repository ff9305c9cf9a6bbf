"""Calibrating a posterior on cells of known state that its fit did not see."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array, lax

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision
from evidial_bayes.models.base import MeasurementModel, Params
from evidial_bayes.models.priors import inside
from evidial_bayes.reference.base import Reference
from evidial_bayes.reference.calibration import BY_FAMILY, Calibration
from evidial_bayes.reference.effective_judges import effective_share_of_judges
from evidial_bayes.reference.elliptical_slice import elliptical_slice_step
from evidial_bayes.reference.one_pass import family_sources, vote_shares

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
    by_family, by_judge, groups = family_sources(panel)
    calibration = calibration.centred(effective_share_of_judges(panel))
    per_kind = {kind: groups if kind in BY_FAMILY else [kind] for kind in calibration.kinds}
    kinds = tuple(kind for kind, of_kind in per_kind.items() for _ in of_kind)
    names = [name for of_kind in per_kind.values() for name in of_kind]
    learned_from = (panel.known >= 0) & ~panel.constructed & (panel.n_votes > 0)
    known = np.flatnonzero(learned_from)
    shares = vote_shares(hidden)
    _, first = np.unique(prepared.pattern, return_index=True)
    state = np.where(learned_from, panel.known, -1)
    one_pass = calibration.one_pass()
    once, once_known = np.zeros((0, len(panel.cells), 1)), np.zeros((0, len(known), 1))
    if one_pass is not None:
        once, once_known = one_pass.evidence(hidden, shares["family_shares"], state, by_judge)
    stacked = {
        str(name): values.to_numpy().reshape(-1, *values.shape[2:])[draws]
        for name, values in fit["posterior"].dataset.data_vars.items()
    }
    if len(known):
        # A calibration learns what the panel misreads, and takes the place of a layer that only had its prior to go by.
        stacked.pop("misreading", None)
    with precision(floats):
        chain = _Chain(
            data=jax.tree.map(jnp.asarray, prepared.data),
            grouping=jnp.asarray(by_family),
            shares={name: jnp.log(jnp.asarray(share[first])) for name, share in shares.items()},
            once=jnp.asarray(once[:, first]),
            once_known=jnp.asarray(once_known),
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
    """What the chain needs besides θ.

    Data of the model; which families make a source ``[source, judge_family]``; logs of vote shares ``[pattern,
    state]``; evidence under emissions estimated once ``[source, pattern, state]``, and of known cells without their own
    votes; and pattern and state of every known cell.
    """

    data: Any
    grouping: Array
    once: Array
    once_known: Array
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
        places = [place for place, kind in enumerate(kinds) if kind == "one_pass"]
        if places:
            at_known = at_known.at[jnp.array(places)].set(jax.nn.log_softmax(chain.once_known, axis=-1))
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
        by_family = jnp.tensordot(chain.grouping, by_family, axes=1)
    for place, kind in enumerate(kinds):
        if kind == "posterior":
            values.append(jnp.log(inside(model.state_probabilities(params, chain.data))))
        elif kind == "prevalence":
            values.append(prevalence)
        elif kind == "families":
            values.append(by_family[kinds[:place].count(kind)])
        elif kind == "one_pass":
            values.append(chain.once[kinds[:place].count(kind)])
        else:
            values.append(chain.shares[kind])
    return jax.nn.log_softmax(jnp.stack(values), axis=-1)


def _positions(fit: xr.DataTree, reference: Reference) -> np.ndarray:
    """Positions of the reference's draws among those of the fit; a mode is repeated, for the calibration varies."""
    total = fit["posterior"].sizes["chain"] * fit["posterior"].sizes["draw"]
    draws = max(len(reference.conditional), LEAST_DRAWS)
    return np.linspace(0, total, draws, endpoint=False).astype(int)
