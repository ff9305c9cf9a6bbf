"""The posterior mode, looked for from many starts."""

from collections.abc import Mapping
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
from evidial_bayes.inference.density import model_centre, sites_at
from evidial_bayes.inference.progress import search_progress
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
            ``sample_stats``; and the group ``modes``, which says of every ``start``, best first, its ``log_density``
            and ``log_likelihood`` at the end, ``gradient`` (the largest by coordinate), ``iterations``, whether it
            ``converged``, and which ``mode`` it found (0 is the best). Its attributes are ``n_modes``; ``share_best``,
            the share of starts that found the best mode; ``gap``, the log density by which the best mode exceeds the
            next, NaN if there is none; and ``relabelled``, whether starts reached the best density at different
            parameters, as classes do that swap names. A search that the bound of the coordinates holds, where one unit
            more would gain ``same_mode`` or more, has not converged: with pseudo-counts below one the density has no
            maximum.

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
            found = self._search(model, data, centre, starts, tuple(prepared.dims))
            best = found[0]["params"]
        tree = assemble_fit(
            effect_key,
            model,
            prepared,
            panel,
            {name: np.asarray(best[name])[None, None] for name in prepared.dims},
            sample_stats={"lp": np.asarray([[found[0]["log_density"]]])},
            attrs={"inference": type(self).__name__, "inference_settings": asdict(self)},
            floats=self.floats,
        )
        tree["modes"] = xr.DataTree(_modes(found, self.same_mode))
        return tree

    def _search(
        self, model: MeasurementModel, data: Any, centre: Params, starts: np.ndarray, sites: tuple[str, ...]
    ) -> list[dict[str, Any]]:
        """Climb from every start; best end first."""
        search, found = self._settings(), []
        density = partial(_log_density, sites, model, data, centre)
        with search_progress(len(starts), show=self.progress) as report:
            for start in starts:
                end, iterations = search.climb(density, start)
                params, log_likelihood = _at(sites, model, data, centre, end.x)
                found.append(
                    {
                        "params": params,
                        "log_density": -float(end.fun) if np.isfinite(end.fun) else -np.inf,
                        "log_likelihood": float(log_likelihood),
                        "gradient": float(np.abs(end.jac).max(initial=0.0)),
                        "iterations": iterations,
                        "converged": search.converged(end),
                    }
                )
                report(max(f["log_density"] for f in found))
        return sorted(found, key=lambda f: -f["log_density"])


def _params(sites: tuple[str, ...], model: MeasurementModel, data: Any, centre: Params, x: Array) -> Params:
    """Sites at flat unconstrained coordinates, which are in the order of those of the centre."""
    every = sites_at(model, data, centre, x)
    return {name: every[name] for name in sites}


@jax.jit(static_argnums=0)
def _log_density(
    sites: tuple[str, ...], model: MeasurementModel, data: Any, centre: Params, x: Array
) -> tuple[Array, Array]:
    """Log posterior density on the scale of the sites, and its gradient by unconstrained coordinate."""

    def density(x: Array) -> Array:
        params = _params(sites, model, data, centre, x)
        return model.total_log_likelihood(params, data) + sum(model.log_prior(params, data).values())

    return jax.value_and_grad(density)(x)


@jax.jit(static_argnums=0)
def _at(sites: tuple[str, ...], model: MeasurementModel, data: Any, centre: Params, x: Array) -> tuple[Params, Array]:
    params = _params(sites, model, data, centre, x)
    return params, model.total_log_likelihood(params, data)


def _modes(found: list[dict[str, Any]], same_mode: float) -> xr.Dataset:
    """Tell modes apart by log density: ends are sorted, and a new mode begins where the density falls."""
    density = np.array([f["log_density"] for f in found])
    mode = np.concatenate([[0], np.cumsum(density[1:] < density[:-1] - same_mode)])
    best = [f["params"] for f, label in zip(found, mode, strict=True) if label == 0]
    gap = density[mode == 0].min() - density[mode == 1].max() if mode.max() else np.nan
    names = ("log_density", "log_likelihood", "gradient", "iterations", "converged")
    out = xr.Dataset({name: ("start", np.array([f[name] for f in found])) for name in names})
    out["mode"] = ("start", mode)
    out.attrs = {
        "n_modes": int(mode.max()) + 1,
        "share_best": float((mode == 0).mean()),
        "gap": float(gap),
        "relabelled": int(any(_differ(best[0], other) for other in best[1:])),
    }
    return out.assign_coords(start=np.arange(len(found)))


def _differ(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    """Whether two ends differ by more than a search's slack in any site: classes that swap names may be as common."""
    pairs = [(np.asarray(a[name]), np.asarray(b[name])) for name in a]
    return any(bool((np.abs(one - other) > 0.05 * np.maximum(1.0, np.abs(one))).any()) for one, other in pairs)
