"""Laplace's approximation: the normal distribution that touches the posterior at its mode, mended by importance."""

from dataclasses import asdict, dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from jax.flatten_util import ravel_pytree

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import precision, use_compilation_cache
from evidial_bayes.inference.density import constrain, log_densities, model_centre, value_and_gradient
from evidial_bayes.inference.gaussian import gaussian_at
from evidial_bayes.inference.importance import check_draws, importance
from evidial_bayes.inference.multistart import find_modes, modes_group
from evidial_bayes.inference.result import assemble_fit
from evidial_bayes.inference.search import ModeSearch
from evidial_bayes.inference.whitening import LEAST_PRECISION
from evidial_bayes.models.base import MeasurementModel

# Each coordinate takes two gradients and a row of a square matrix.
MOST_COORDINATES = 2000


@dataclass(frozen=True)
class Laplace:
    """Settings of Laplace's approximation, always computed in double precision.

    The mode is that of the density of unconstrained coordinates, so that a simplex or a scale is nearly normal there.

    Parameters
    ----------
    num_samples
        Number of draws.
    num_proposals
        Draws of the normal distribution that are weighed against the posterior.
    num_starts, spread, max_iterations, tolerance, same_mode
        Search for the mode, as for `MAP`.
    progress
        Show a progress bar, where the output is a terminal.

    Raises
    ------
    InputError
        A setting is out of range.
    """

    num_samples: int = 4000
    num_proposals: int = 20_000
    num_starts: int = 8
    spread: float = 1.5
    max_iterations: int = 2000
    tolerance: float = 1e-7
    same_mode: float = 0.01
    progress: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        self._search()
        check_draws(self.num_samples, self.num_proposals)

    def _search(self) -> ModeSearch:
        return ModeSearch(self.num_starts, self.spread, self.max_iterations, self.tolerance, self.same_mode)

    def fit(self, rng_key: Array, model: MeasurementModel, panel: Panel) -> xr.DataTree:
        """Approximate the posterior of a model's parameters given the votes of a panel.

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
            As `assemble_fit` makes it, with one chain of independent draws, whose log density is ``lp`` in
            ``sample_stats``; the group ``modes`` of `modes_group`; and the group ``approximation``, whose attributes
            are ``pareto_k``, how far the normal distribution is from the posterior; ``importance_ess``;
            ``log_evidence``; whether draws were ``resampled`` by importance, which mends what is left of the distance
            as long as ``pareto_k`` is at most .7; and whether the search ``converged``.

        Raises
        ------
        InputError
            The model cannot be prepared for the panel, it has too many coordinates, or its density has no mode.
        """
        prepared = model.prepare(panel)
        use_compilation_cache()
        start_key, proposal_key, choice_key, effect_key = jax.random.split(rng_key, 4)
        with precision("float64"):
            data = jax.tree.map(jnp.asarray, prepared.data)
            centre = model_centre(model, data)
            flat = ravel_pytree(centre)[0]
            if flat.size > MOST_COORDINATES:
                raise InputError(
                    f"inference: Laplace's approximation is for at most {MOST_COORDINATES} coordinates, and this model "
                    f"has {flat.size} for this panel; inference=svi or nuts have no such bound."
                )
            density = partial(value_and_gradient, model, data, centre)
            starts = self._search().starts(start_key, flat)
            found = find_modes(
                self._search(), density, starts, model, data, centre, tuple(prepared.dims), show=self.progress
            )
            if not np.isfinite(found[0].log_density):
                raise InputError("inference: no search found a point where the log density is finite; see the priors.")
            normal, _ = gaussian_at(density, found[0].x, LEAST_PRECISION)
            z = jax.random.normal(proposal_key, (self.num_proposals, flat.size), flat.dtype)
            x = jnp.asarray(normal.mean) + z @ jnp.asarray(normal.factor)
            log_p = np.asarray(log_densities(model, data, centre, x))
            log_scale = np.linalg.slogdet(normal.factor)[1] + 0.5 * flat.size * np.log(2 * np.pi)
            log_q = -0.5 * np.square(np.asarray(z)).sum(-1) - log_scale
            weighed = importance(choice_key, log_p - log_q, self.num_samples)
            sites = constrain(model, data, centre, x[weighed.chosen][None])
        tree = assemble_fit(
            effect_key,
            model,
            prepared,
            panel,
            {name: np.asarray(sites[name]) for name in prepared.dims},
            sample_stats={"lp": log_p[weighed.chosen][None]},
            attrs={"inference": type(self).__name__, "inference_settings": asdict(self)},
            floats="float64",
        )
        tree["modes"] = xr.DataTree(modes_group(found, self.same_mode))
        tree["approximation"] = xr.DataTree(weighed.group(converged=found[0].converged))
        return tree
