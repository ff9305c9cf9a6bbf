"""Priors that know only their numbers; the model gives them the shapes of the panel."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from scipy.linalg import helmert

from evidial_bayes.data.errors import InputError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SymmetricDirichlet:
    """Dirichlet with the same pseudo-count for every state.

    Parameters
    ----------
    concentration
        Pseudo-count of each state; 1 is uniform over the simplex.
    """

    concentration: float = 1.0

    def __post_init__(self) -> None:
        """Check the pseudo-count."""
        _positive(self, "concentration")

    def over(self, n_states: int) -> Array:
        """Concentrations ``[state]``."""
        return self.concentration * jnp.ones(n_states)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalDirichlet:
    """Dirichlet rows of an emission matrix that lean to the category which the state reads as.

    The lean is what names the latent classes: with it, state k is the class that judges call k more often than not.
    Off-diagonal counts below one favour emissions of exactly zero and invite second modes.

    Parameters
    ----------
    diagonal
        Pseudo-count of the category that a faultless judge would cast.
    off_diagonal
        Pseudo-count of every other category.
    """

    diagonal: float = 8.0
    off_diagonal: float = 1.0

    def __post_init__(self) -> None:
        """Check the pseudo-counts."""
        _positive(self, "diagonal")
        _positive(self, "off_diagonal")

    def over(self, reads: ArrayLike) -> Array:
        """Concentrations ``[state, category]``; ``reads`` is the one-hot category of each state, same shape."""
        return self.off_diagonal + (self.diagonal - self.off_diagonal) * jnp.asarray(reads)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ZeroSumSlopes:
    """Normal effects of a covariate on the log-odds of the states, summing to zero over states.

    Parameters
    ----------
    scale
        Standard deviation of an effect before it is centred over states.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the scale."""
        _positive(self, "scale")

    def over(self, n_states: int) -> dist.Distribution:
        """Distribution of one covariate's effects ``[state]``."""
        return dist.ZeroSumNormal(self.scale, event_shape=(n_states,))


class LogRatioDirichlet(dist.Distribution):
    """A Dirichlet vector in isometric log-ratio coordinates.

    ``p ~ Dirichlet(concentration)`` is carried by ``x`` with ``p = softmax(x · basis)``: unbounded and symmetric in the
    categories, so that a sampler meets no simplex boundary and ``log p`` stays finite.

    Source: Egozcue et al. (2003), Isometric logratio transformations, Mathematical Geology 35.

    Parameters
    ----------
    concentration
        ``[..., category]``.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}  # noqa: RUF012
    support = constraints.real_vector
    pytree_data_fields = ("concentration",)

    def __init__(self, concentration: Array, *, validate_args: bool | None = None) -> None:
        self.concentration = concentration
        shape = jnp.shape(concentration)
        super().__init__(shape[:-1], (shape[-1] - 1,), validate_args=validate_args)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw coordinates ``[..., category − 1]``."""
        return to_log_ratio(dist.Dirichlet(self.concentration).sample(key, sample_shape))

    @validate_sample  # type: ignore[untyped-decorator]
    def log_prob(self, value: Array) -> Array:
        """Log density of the coordinates: Dirichlet times the Jacobian of the softmax, ``√C · Π p``."""
        log_p = from_log_ratio(value)
        size = self.concentration.shape[-1]
        normaliser = jax.lax.lgamma(jnp.sum(self.concentration, -1)) - jnp.sum(jax.lax.lgamma(self.concentration), -1)
        return jnp.sum(self.concentration * log_p, -1) + normaliser + 0.5 * np.log(size)


def to_log_ratio(p: Array) -> Array:
    """Coordinates ``[..., category − 1]`` of probabilities ``[..., category]``."""
    log_p = jnp.log(jnp.maximum(p, jnp.finfo(jnp.result_type(p)).tiny))
    return log_p @ helmert(p.shape[-1]).T


def from_log_ratio(x: Array) -> Array:
    """Log probabilities ``[..., category]`` of coordinates ``[..., category − 1]``."""
    return jax.nn.log_softmax(x @ helmert(x.shape[-1] + 1), axis=-1)


def _positive(prior: object, name: str) -> None:
    value = getattr(prior, name)
    # Inside a traced program fields are arrays, checked already when the prior was made.
    if isinstance(value, int | float) and not (0 < value < np.inf):
        raise InputError(f"{type(prior).__name__}.{name}: {value!r} is not usable; allowed: a positive number.")
