"""The posterior of the states given the votes, as a reference."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision
from evidial_bayes.inference.result import stacked_posterior
from evidial_bayes.models.base import MeasurementModel, Params
from evidial_bayes.reference.base import Reference, resolved_below

BATCH = 64


def posterior_reference(
    fit: xr.DataTree,
    model: MeasurementModel,
    panel: Panel,
    *,
    draws: int | None = None,
    max_entropy: float | None = None,
    floats: Precision = "float64",
) -> Reference:
    """Probability of every cell's state given its votes, for every posterior draw of the parameters.

    Parameters
    ----------
    fit
        Result of fitting ``model`` to ``panel``.
    model, panel
        What was fitted to what.
    draws
        Number of posterior draws to keep, evenly spaced over all chains; None keeps all.
    max_entropy
        Cells whose averaged state probabilities have a larger entropy, in nats, are unresolved. Without it every cell
        with a vote, or with a known state, is resolved.
    floats
        Precision of the arithmetic.

    Returns
    -------
    Reference
        ``posterior``, with one row of ``conditional`` for each kept draw. Cells without a vote keep their prevalence
        and are unresolved.

    Raises
    ------
    InputError
        The fit is not of this panel, or a setting is out of range.
    """
    if fit.attrs.get("panel_hash") != panel.hash:
        raise InputError("The fit is not of this panel: votes, cells or codebook have changed since; fit again.")
    if draws is not None and (isinstance(draws, bool) or not isinstance(draws, int) or draws < 1):
        raise InputError(f"reference.draws: {draws!r} is not usable; allowed: a whole number from 1 on, or null.")
    prepared = model.prepare(panel)
    params = stacked_posterior(fit)
    sites = {**prepared.dims, **prepared.effects}
    if params.keys() != sites.keys():
        raise InputError(
            f"The fit is of another model: it has the parameters {', '.join(sorted(params))}, the model has "
            f"{', '.join(sorted(sites))}."
        )
    total = len(next(iter(params.values())))
    kept = np.arange(total) if draws is None else np.linspace(0, total, min(draws, total), endpoint=False).astype(int)
    with precision(floats):
        data = jax.tree.map(jnp.asarray, prepared.data)
        conditional = np.asarray(_states(model, data, {name: jnp.asarray(x[kept]) for name, x in params.items()}))
    reference = Reference(
        name="posterior",
        codebook=panel.codebook,
        cells=panel.coords["cell"],
        conditional=conditional,
        pattern=prepared.pattern,
        resolved=(panel.n_votes > 0) | (panel.known >= 0),
        n_votes=panel.n_votes,
    )
    return resolved_below(reference, max_entropy)


@jax.jit
def _states(model: MeasurementModel, data: Any, params: Params) -> jax.Array:
    return jax.lax.map(lambda one: model.state_probabilities(one, data), params, batch_size=BATCH)
