"""The posterior mode, looked for from many starts."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from jax.flatten_util import ravel_pytree

from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision, use_compilation_cache
from evidial_bayes.inference.density import model_centre
from evidial_bayes.inference.multistart import find_modes, modes_group, params_at
from evidial_bayes.inference.result import assemble_fit
from evidial_bayes.inference.search import ModeSearch
from evidial_bayes.models.base import MeasurementModel, Params


@dataclass(frozen=True)
class MAP:
    """Settings of a search for the posterior mode.

    The mode is that of the density on the scale on which the posterior reports its sites, without the Jacobians of the
    sampler's coordinates: under flat priors it is the maximum of the likelihood.

    Parameters
    ----------
    num_starts
        Number of starts. The first is the model's own; half of the rest are jittered about it, the others scattered.
    spread
        Standard deviation of the scattered starts, in unconstrained units.
    max_iterations
        Most L-BFGS iterations of a start.
    tolerance
        A search has converged when no unconstrained coordinate has a larger gradient, in log-density units relative to
        the log density; with float32, whose gradients are no finer, at least the root of its rounding error, 3e-4.
    same_mode
        Starts whose log densities differ by less have found the same mode: far more than what searches that converged
        leave undone, and a ratio of densities, 1.01, that nobody would tell apart.
    floats
        Precision of all arithmetic.
    progress
        Show a progress bar, where the output is a terminal.

    Raises
    ------
    InputError
        A setting is out of range.
    """

    num_starts: int = 20
    spread: float = 1.5
    max_iterations: int = 2000
    tolerance: float = 1e-7
    same_mode: float = 0.01
    floats: Precision = "float64"
    progress: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        self._settings()

    def _settings(self) -> ModeSearch:
        return ModeSearch(
            self.num_starts, self.spread, self.max_iterations, self.tolerance, self.same_mode, self.floats
        )

    def fit(self, rng_key: Array, model: MeasurementModel, panel: Panel) -> xr.DataTree:
        """Find the mode of a model's parameters given the votes of a panel.

        Parameters
        ----------
        rng_key
            JAX random key.
        model
            Measurement model.
        panel
            Votes.

        Returns
        -------
        xarray.DataTree
            As `assemble_fit` makes it, with one chain of one draw, the best mode, whose log density is ``lp`` in
            ``sample_stats``; and the group ``modes`` that `modes_group` makes of all searches. A search that the bound
            of the coordinates holds, where one unit more would gain ``same_mode`` or more, has not converged: with
            pseudo-counts below one the density has no maximum.

        Raises
        ------
        InputError
            The model cannot be prepared for the panel.
        """
        prepared = model.prepare(panel)
        use_compilation_cache()
        start_key, effect_key = jax.random.split(rng_key)
        with precision(self.floats):
            data = jax.tree.map(jnp.asarray, prepared.data)
            centre = model_centre(model, data)
            starts = self._settings().starts(start_key, ravel_pytree(centre)[0])
            density = partial(_log_density, tuple(prepared.dims), model, data, centre)
            found = find_modes(
                self._settings(), density, starts, model, data, centre, tuple(prepared.dims), show=self.progress
            )
            best = found[0].params
        tree = assemble_fit(
            effect_key,
            model,
            prepared,
            panel,
            {name: np.asarray(best[name])[None, None] for name in prepared.dims},
            sample_stats={"lp": np.asarray([[found[0].log_density]])},
            attrs={"inference": type(self).__name__, "inference_settings": asdict(self)},
            floats=self.floats,
        )
        tree["modes"] = xr.DataTree(modes_group(found, self.same_mode))
        return tree


@jax.jit(static_argnums=0)
def _log_density(
    sites: tuple[str, ...], model: MeasurementModel, data: Any, centre: Params, x: Array
) -> tuple[Array, Array]:
    """Log posterior density on the scale of the sites, and its gradient by unconstrained coordinate."""

    def density(x: Array) -> Array:
        params = params_at(sites, model, data, centre, x)
        return model.total_log_likelihood(params, data) + sum(model.log_prior(params, data).values())

    return jax.value_and_grad(density)(x)
