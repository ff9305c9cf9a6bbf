"""Coordinates in which a posterior is nearly standard normal."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from evidial_bayes.inference.compilation import precision
from evidial_bayes.inference.density import model_centre, value_and_gradient
from evidial_bayes.inference.gaussian import Gaussian, gaussian_at
from evidial_bayes.inference.search import ModeSearch
from evidial_bayes.models.base import MeasurementModel, Prepared

# Coordinates beyond which whitening, a product with a square matrix in every step, costs more than it saves.
MOST_WHITENED = 500
# Where the density is flatter at its mode, coordinates are stretched to a standard deviation of ten only.
LEAST_PRECISION = 1e-2


def whitening(model: MeasurementModel, prepared: Prepared) -> Gaussian | None:
    """Take the normal distribution that touches the posterior at its mode; None where it cannot be had or costs much.

    Parameters
    ----------
    model, prepared
        What is fitted to what.
    """
    # In single precision differences of gradients would be noise.
    with precision("float64"):
        data = jax.tree.map(jnp.asarray, prepared.data)
        centre = model_centre(model, data)
        start = np.asarray(ravel_pytree(centre)[0])
        if start.size > MOST_WHITENED:
            return None
        density = partial(value_and_gradient, model, data, centre)
        end, _ = ModeSearch(num_starts=1).climb(density, start)
        if not np.isfinite(end.fun):
            return None
        return gaussian_at(density, end.x, LEAST_PRECISION)[0]
