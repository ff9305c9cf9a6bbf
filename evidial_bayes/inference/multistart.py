"""Modes of a density, and how often searches from many starts find each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax import Array

from evidial_bayes.inference.density import sites_at
from evidial_bayes.inference.progress import search_progress
from evidial_bayes.inference.search import ModeSearch
from evidial_bayes.models.base import MeasurementModel, Params


@dataclass(frozen=True, eq=False)
class Ending:
    """Where one climb ended: unconstrained coordinates, the sites there, and what is known of the density."""

    x: np.ndarray
    params: Params
    log_density: float
    log_likelihood: float
    gradient: float
    iterations: int
    converged: bool


def find_modes(
    search: ModeSearch,
    density: Callable[[np.ndarray], tuple[Array, Array]],
    starts: np.ndarray,
    model: MeasurementModel,
    data: Any,
    centre: Params,
    sites: Sequence[str],
    *,
    show: bool,
) -> list[Ending]:
    """Climb from every start.

    Parameters
    ----------
    search
        How to climb.
    density
        Log density and its gradient at unconstrained coordinates.
    starts
        ``[start, coordinate]``.
    model, data, centre
        What the coordinates are those of.
    sites
        Sites of the posterior.
    show
        Show a progress bar, where the output is a terminal.

    Returns
    -------
    list of Ending
        Best first.
    """
    at, found = partial(params_and_log_likelihood, tuple(sites), model, data, centre), []
    with search_progress(len(starts), show=show) as report:
        for start in starts:
            end, iterations = search.climb(density, start)
            params, log_likelihood = at(end.x)
            found.append(
                Ending(
                    x=end.x,
                    params=params,
                    log_density=-float(end.fun) if np.isfinite(end.fun) else -np.inf,
                    log_likelihood=float(log_likelihood),
                    gradient=float(np.abs(end.jac).max(initial=0.0)),
                    iterations=iterations,
                    converged=search.converged(end),
                )
            )
            report(max(ending.log_density for ending in found))
    return sorted(found, key=lambda ending: -ending.log_density)


def modes_group(found: Sequence[Ending], same_mode: float) -> xr.Dataset:
    """Tell modes apart by log density: ends are sorted, and a new mode begins where the density falls.

    Parameters
    ----------
    found
        Ends of the searches, best first.
    same_mode
        Ends whose log densities differ by less are the same mode.

    Returns
    -------
    xarray.Dataset
        For every ``start`` its ``log_density`` and ``log_likelihood`` at the end, ``gradient`` (the largest by
        coordinate), ``iterations``, whether it ``converged``, and which ``mode`` it found (0 is the best). Its
        attributes are ``n_modes``; ``share_best``, the share of starts that found the best mode; ``gap``, the log
        density by which the best mode exceeds the next, NaN if there is none; and ``relabelled``, whether starts
        reached the best density at different parameters, as classes do that swap names.
    """
    density = np.array([ending.log_density for ending in found])
    mode = np.concatenate([[0], np.cumsum(density[1:] < density[:-1] - same_mode)])
    best = [ending.params for ending, label in zip(found, mode, strict=True) if label == 0]
    gap = density[mode == 0].min() - density[mode == 1].max() if mode.max() else np.nan
    names = ("log_density", "log_likelihood", "gradient", "iterations", "converged")
    out = xr.Dataset({name: ("start", np.array([getattr(ending, name) for ending in found])) for name in names})
    out["mode"] = ("start", mode)
    out.attrs = {
        "n_modes": int(mode.max()) + 1,
        "share_best": float((mode == 0).mean()),
        "gap": float(gap),
        "relabelled": int(any(_differ(best[0], other) for other in best[1:])),
    }
    return out.assign_coords(start=np.arange(len(found)))


def params_at(sites: tuple[str, ...], model: MeasurementModel, data: Any, centre: Params, x: Array) -> Params:
    """Sites of the posterior at flat unconstrained coordinates, which are in the order of those of the centre."""
    every = sites_at(model, data, centre, x)
    return {name: every[name] for name in sites}


@jax.jit(static_argnums=0)
def params_and_log_likelihood(
    sites: tuple[str, ...], model: MeasurementModel, data: Any, centre: Params, x: Array
) -> tuple[Params, Array]:
    """`params_at`, and the log probability of all votes there."""
    params = params_at(sites, model, data, centre, x)
    return params, model.total_log_likelihood(params, data)


def _differ(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    """Whether two ends differ by more than a search's slack in any site: classes that swap names may be as common."""
    pairs = [(np.asarray(a[name]), np.asarray(b[name])) for name in a]
    return any(bool((np.abs(one - other) > 0.05 * np.maximum(1.0, np.abs(one))).any()) for one, other in pairs)
