"""The climb to a mode, and where climbs start."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from scipy.optimize import OptimizeResult, minimize

from evidial_bayes.data.errors import InputError
from evidial_bayes.inference.compilation import Precision

# Half width of the box in unconstrained units: probits up to 12 and logits up to 80, beyond which no table can tell.
BOUND = 60.0
# Spread of the starts about the model's own, relative to that of the scattered ones. Much nearer, they all climb to the
# mode that the model's own start finds, and look for nothing else.
NEAR = 2 / 3


@dataclass(frozen=True)
class ModeSearch:
    """L-BFGS from many starts.

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
        Precision of the density.

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

    def starts(self, rng_key: Array, centre: Array) -> np.ndarray:
        """Unconstrained coordinates ``[start, coordinate]`` about a centre ``[coordinate]``."""
        starts = self.spread * jax.random.normal(rng_key, (self.num_starts, centre.size), centre.dtype)
        starts = starts.at[1::2].set(centre + NEAR * starts[1::2]).at[0].set(centre)
        return np.asarray(starts, dtype=np.float64)

    def climb(
        self, value_and_gradient: Callable[[np.ndarray], tuple[Array, Array]], x: np.ndarray
    ) -> tuple[OptimizeResult, int]:
        """Run L-BFGS until it has converged, used up its iterations, or gains nothing by starting afresh.

        Far from a mode the curvature it remembers can mislead it into steps so small that it stops on a slope.

        Parameters
        ----------
        value_and_gradient
            Log density and its gradient at a point.
        x
            Start ``[coordinate]``.

        Returns
        -------
        tuple
            SciPy's result for minus the log density, and the number of iterations in all.
        """

        def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = value_and_gradient(x)
            return -float(value), -np.asarray(gradient, dtype=np.float64)

        iterations, before = 0, np.inf
        while True:
            end: Any = minimize(
                downhill,
                x,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-BOUND, BOUND)] * x.size,
                options={
                    "maxiter": self.max_iterations - iterations,
                    "ftol": 1e-15,
                    "gtol": self.tolerance,
                    "maxcor": 30,
                    "maxfun": 10**6,
                },
            )
            iterations += int(end.nit)
            if self.converged(end) or iterations >= self.max_iterations or not end.fun < before:
                return end, iterations
            x, before = end.x, end.fun

    def converged(self, end: OptimizeResult) -> bool:
        """Whether an end is a mode, or so near one at infinity that going on past the bound would gain next to nothing.

        Runaway loadings pull outwards a little still; where density has no maximum at all, the pull is much larger.
        """
        outward = (np.abs(end.x) >= BOUND) & (end.jac * end.x < 0)
        tolerance = max(self.tolerance, float(np.sqrt(np.finfo(self.floats).eps)))
        free = np.abs(end.jac[~outward]).max(initial=0.0) <= tolerance * max(1.0, abs(float(end.fun)))
        held = np.abs(end.jac[outward]).max(initial=0.0) < self.same_mode
        return bool(np.isfinite(end.fun) and free and held)
