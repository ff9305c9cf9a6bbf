"""The normal distribution that touches a density at a point: the metric of samplers, and Laplace's approximation."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array

# Step of the differences of gradients, in unconstrained units: the error of curvature, third derivatives × step²,
# is then far below what a metric or a proposal can feel, and rounding, 1e-16 × log density ÷ step, as well.
STEP = 1e-4


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Gaussian:
    """Normal distribution of unconstrained coordinates.

    Parameters
    ----------
    mean
        ``[coordinate]``.
    factor
        Symmetric root of the covariance, ``[coordinate, coordinate]``.
    """

    mean: Array | np.ndarray
    factor: Array | np.ndarray


def gaussian_at(
    value_and_gradient: Callable[[np.ndarray], tuple[Array, Array]], mean: np.ndarray, least_precision: float
) -> tuple[Gaussian, np.ndarray]:
    """Take the normal distribution that curves at a point as a log density does there.

    Parameters
    ----------
    value_and_gradient
        Log density and its gradient, in double precision.
    mean
        Point ``[coordinate]``.
    least_precision
        Directions along which the density curves less, or upwards, get this precision, per squared unit.

    Returns
    -------
    tuple
        The distribution, and the eigenvalues of minus the Hessian, smallest first, as found.
    """
    size = mean.size
    hessian = np.empty((size, size))
    for i in range(size):
        moved = np.zeros(size)
        moved[i] = STEP
        ahead, behind = value_and_gradient(mean + moved)[1], value_and_gradient(mean - moved)[1]
        hessian[i] = (np.asarray(ahead, np.float64) - np.asarray(behind, np.float64)) / (2 * STEP)
    curvature, axes = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    factor = (axes / np.sqrt(np.maximum(curvature, least_precision))) @ axes.T
    return Gaussian(mean, factor), curvature
