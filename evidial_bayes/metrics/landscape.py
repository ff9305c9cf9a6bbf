"""The evidence landscape: which states the cells of a panel are in."""

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jax import Array

from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import precision
from evidial_bayes.reference.base import Reference, draw_states

ALL_SOURCES = "all sources"
SHARE_DRAWS = 1000  # enough for two digits of a 95 % interval's ends; more only costs memory
CHUNK = 250  # draws of all cells held at once


def state_shares(rng_key: Array, reference: Reference, panel: Panel) -> xr.DataArray:
    """Posterior draws of the share of cells in each state, by source.

    Estimand: the composition of the planned cells themselves. The spread holds the uncertainty of the
    reference (states and parameters, jointly over cells) and no resampling of participants.

    Parameters
    ----------
    rng_key
        JAX random key.
    reference
        Where the states come from.
    panel
        Whose cells say which source they belong to.

    Returns
    -------
    xarray.DataArray
        Shares ``[draw, source, state]`` that sum to one over states. ``all sources`` comes last when there is
        more than one source.
    """
    codes, sources = pd.factorize(panel.cells["source"])
    n_states = len(reference.codebook.states)
    available = len(reference.conditional)
    # A posterior is thinned evenly; a single draw of probabilities, as of a mode, gives many draws of states.
    draws = np.linspace(0, available, SHARE_DRAWS, endpoint=False).astype(np.int64)
    counts = np.empty((len(draws), len(sources), n_states))
    everything = np.arange(len(reference.cells))
    for start in range(0, len(draws), CHUNK):
        part = draws[start : start + CHUNK]
        key = jax.random.fold_in(rng_key, start)
        with precision("float64"):
            states = draw_states(key, reference, everything, part, states=True, parameters=True)
        bins = (np.arange(len(part))[:, None] * len(sources) + codes) * n_states + states
        counted = np.bincount(bins.ravel(), minlength=len(part) * len(sources) * n_states)
        counts[start : start + len(part)] = counted.reshape(len(part), len(sources), n_states)
    names = [str(source) for source in sources]
    if len(names) > 1:
        counts = np.concatenate([counts, counts.sum(1, keepdims=True)], axis=1)
        names.append(ALL_SOURCES)
    return xr.DataArray(
        counts / counts.sum(-1, keepdims=True),
        dims=("draw", "source", "state"),
        coords={"source": names, "state": list(reference.codebook.states)},
        name="share",
    )
