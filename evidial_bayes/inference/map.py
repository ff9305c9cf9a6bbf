"""The posterior mode, looked for from many starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import constrain_fn, unconstrain_fn
from scipy.optimize import minimize

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision, use_compilation_cache
from evidial_bayes.inference.progress import search_progress
from evidial_bayes.inference.result import assemble_fit
from evidial_bayes.models.base import MeasurementModel, Params

# Half width of the box in unconstrained units: probabilities down to about 1e-13, beyond which no table can tell.
BOUND = 30.0


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
        the log density.
    same_mode
        Starts whose log densities differ by less have found the same mode.
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
        for name in ("num_starts", "max_iterations"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"inference.{name}: {value!r} is not usable; allowed: a whole number from 1 on.")
        for name in ("spread", "tolerance", "same_mode"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
                raise InputError(f"inference.{name}: {value!r} is not usable; allowed: a positive number.")
        if self.floats not in ("float64", "float32"):
            raise InputError(f"inference.floats: '{self.floats}' is unknown. Allowed: float64, float32.")

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
            ``converged``, and which ``mode`` it found (0 is the best). Its attributes are ``share_best``, the share of
            starts that found the best mode; ``gap``, the log density by which the best mode exceeds the next, NaN if
            there is none; and ``relabelled``, whether starts reached the best density at different parameters, as
            classes do that swap names.

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
            starts = self._starts(start_key, model, data)
            found = self._search(model, data, starts, tuple(prepared.dims))
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

    def _starts(self, rng_key: Array, model: MeasurementModel, data: Any) -> list[Params]:
        centre = unconstrain_fn(model, (data,), {}, model.initial(data))
        flat, back = ravel_pytree(centre)
        keys = jax.random.split(rng_key, self.num_starts)
        starts = [centre]
        for i in range(1, self.num_starts):
            noise = self.spread * jax.random.normal(keys[i], flat.shape, flat.dtype)
            starts.append(back(flat + noise / 3 if i % 2 else noise))
        return starts

    def _search(
        self, model: MeasurementModel, data: Any, starts: list[Params], sites: tuple[str, ...]
    ) -> list[dict[str, Any]]:
        """Climb from every start; best end first."""
        found = []
        with search_progress(len(starts), show=self.progress) as report:
            for start in starts:
                flat, back = ravel_pytree(start)

                def downhill(x: np.ndarray, back: Any = back) -> tuple[float, np.ndarray]:
                    value, gradient = _log_density(sites, model, data, back(jnp.asarray(x)))
                    return -float(value), -np.asarray(ravel_pytree(gradient)[0], dtype=np.float64)

                end = minimize(
                    downhill,
                    np.asarray(flat, dtype=np.float64),
                    jac=True,
                    method="L-BFGS-B",
                    bounds=[(-BOUND, BOUND)] * flat.size,
                    options={
                        "maxiter": self.max_iterations,
                        "ftol": 1e-15,
                        "gtol": 1e-8,
                        "maxcor": 30,
                        "maxfun": 10**6,
                    },
                )
                # At a bound the gradient may point outwards.
                inward = np.where(np.abs(end.x) < BOUND, end.jac, 0.0)
                gradient = float(np.abs(inward).max(initial=0.0))
                params, log_likelihood = _at(sites, model, data, back(jnp.asarray(end.x)))
                found.append(
                    {
                        "params": params,
                        "log_density": -float(end.fun),
                        "log_likelihood": float(log_likelihood),
                        "gradient": gradient,
                        "iterations": int(end.nit),
                        "converged": gradient <= self.tolerance * max(1.0, abs(float(end.fun))),
                    }
                )
                report(max(f["log_density"] for f in found))
        return sorted(found, key=lambda f: -f["log_density"])


def _params(sites: tuple[str, ...], model: MeasurementModel, data: Any, z: Params) -> Params:
    every = constrain_fn(model, (data,), {}, z, return_deterministic=True)
    return {name: every[name] for name in sites}


@jax.jit(static_argnums=0)
def _log_density(sites: tuple[str, ...], model: MeasurementModel, data: Any, z: Params) -> tuple[Array, Params]:
    """Log posterior density on the scale of the sites, and its gradient by unconstrained coordinate."""

    def density(z: Params) -> Array:
        params = _params(sites, model, data, z)
        return model.total_log_likelihood(params, data) + sum(model.log_prior(params, data).values())

    return jax.value_and_grad(density)(z)


@jax.jit(static_argnums=0)
def _at(sites: tuple[str, ...], model: MeasurementModel, data: Any, z: Params) -> tuple[Params, Array]:
    params = _params(sites, model, data, z)
    return params, model.total_log_likelihood(params, data)


def _modes(found: list[dict[str, Any]], same_mode: float) -> xr.Dataset:
    """Tell modes apart by log density: ends are sorted, and a new mode begins where the density falls."""
    density = np.array([f["log_density"] for f in found])
    mode = np.concatenate([[0], np.cumsum(-np.diff(density) > same_mode)])
    best = [f["params"] for f in found if f["log_density"] >= density[0] - same_mode]
    gap = density[mode == 0].min() - density[mode == 1].max() if mode.max() else np.nan
    names = ("log_density", "log_likelihood", "gradient", "iterations", "converged")
    out = xr.Dataset({name: ("start", np.array([f[name] for f in found])) for name in names})
    out["mode"] = ("start", mode)
    out.attrs = {
        "share_best": float((mode == 0).mean()),
        "gap": float(gap),
        "relabelled": int(any(_differ(best[0], other) for other in best[1:])),
    }
    return out.assign_coords(start=np.arange(len(found)))


def _differ(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    """Whether two ends differ by more than a search's slack, in the prevalence where there is one."""
    names = ["prevalence"] if "prevalence" in a else list(a)
    return any(float(np.abs(np.asarray(a[name]) - np.asarray(b[name])).max()) > 0.05 for name in names)
