"""Rules that replace the integral over a normal effect by a weighted sum over nodes."""

from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from evidial_bayes.data.errors import InputError


class Quadrature(Protocol):
    """A rule for ``∫ f(b) N(b | 0, σ²) db ≈ Σ_g exp(log_weight_g) f(b_g)``; its weights sum to one."""

    def __call__(self, sigma: Array) -> tuple[Array, Array]:
        """Nodes ``b`` and log weights, both ``[node]``, for standard deviation ``sigma``."""
        ...


@dataclass(frozen=True)
class GaussHermite:
    """Gauss–Hermite nodes scaled by σ: exact for polynomials of degree ``2·nodes − 1`` in the effect.

    Parameters
    ----------
    nodes
        Number of nodes, 1 to 200.

    Raises
    ------
    InputError
        ``nodes`` is out of range.
    """

    nodes: int = 15

    def __post_init__(self) -> None:
        """Check the number of nodes."""
        if isinstance(self.nodes, bool) or not isinstance(self.nodes, int) or not 1 <= self.nodes <= 200:
            raise InputError(f"quadrature.nodes: {self.nodes!r} is not usable; allowed: a whole number from 1 to 200.")

    def __call__(self, sigma: Array) -> tuple[Array, Array]:
        """Nodes ``[node]`` on the scale of the effect, and log weights ``[node]``."""
        x, weight = np.polynomial.hermite_e.hermegauss(self.nodes)
        return jnp.asarray(sigma * x), jnp.asarray(np.log(weight / weight.sum()))


@dataclass(frozen=True)
class PaperGrid:
    """The fixed grid of the source paper: ``b_g = −6 + 0.15 g, g = 0..80``, weights ∝ ``exp(−b_g²/2σ²)``.

    The weights are normalised to one, which is what the sum needs to stand for an integral: without the grid width the
    log likelihood of n cells is off by ``−n log 0.15``. Accurate while σ is above the grid's width and below about 2.

    Source: EviDial (arXiv 2610.27541), App. F.
    """

    nodes: int = field(default=81, init=False)

    def __call__(self, sigma: Array) -> tuple[Array, Array]:
        """Nodes ``[node]`` on the scale of the effect, and log weights ``[node]``."""
        b = jnp.asarray(-6 + 0.15 * np.arange(self.nodes))
        return b, jax.nn.log_softmax(-0.5 * (b / sigma) ** 2)
