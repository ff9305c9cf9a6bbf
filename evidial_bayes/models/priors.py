"""Priors that know only their numbers; the model gives them the shapes of the panel."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
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
        check_positive(self, "concentration")

    def over(self, n_states: int) -> Array:
        """Concentrations ``[state]``."""
        return self.concentration * jnp.ones(n_states)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Misreading:
    """Dirichlet rows of a matrix from true to apparent states that lean to reading them right.

    Parameters
    ----------
    right
        Prior mean of reading a state as itself (ρ); the rest is spread evenly over the other states.
    weight
        Pseudo-counts of a row (m): the larger, the surer that readings are right a share ``right`` of the time.
    """

    right: float = 0.9
    weight: float = 20.0

    def __post_init__(self) -> None:
        """Check share and weight."""
        check_positive(self, "right", "weight")
        if isinstance(self.right, int | float) and not self.right < 1:
            raise InputError(f"Misreading.right: {self.right!r} is not usable; allowed: a share between 0 and 1.")

    def over(self, n_states: int) -> Array:
        """Concentrations ``[state, apparent_state]``."""
        eye = jnp.eye(n_states)
        spread = (1 - eye) * (1 - self.right) / max(n_states - 1, 1)
        return self.weight * (self.right * eye + spread) + (eye if n_states == 1 else 0)


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
        check_positive(self, "scale")

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


def inside(p: Array) -> Array:
    """Keep probabilities that underflowed to zero away from it: zero counts times log zero would be NaN."""
    return jnp.maximum(p, jnp.finfo(jnp.result_type(p)).tiny)


def check_positive(prior: object, *names: str) -> None:
    """Refuse hyperparameters that are not positive numbers.

    Raises
    ------
    InputError
        One of them is not.
    """
    for name in names:
        value = getattr(prior, name)
        # Inside a traced program fields are arrays, checked already when the prior was made.
        if isinstance(value, int | float) and not (0 < value < np.inf):
            raise InputError(f"{type(prior).__name__}.{name}: {value!r} is not usable; allowed: a positive number.")
