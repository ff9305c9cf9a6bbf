"""One step of elliptical slice sampling, for a standard normal prior."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

# Random key, angle, both ends of the bracket, and the log likelihood at the angle.
type _Bracket = tuple[Array, Array, Array, Array, Array]


def elliptical_slice_step(rng_key: Array, z: Array, log_likelihood: Callable[[Array], Array]) -> Array:
    """Move to a point that leaves ``N(z; 0, I) · exp(log_likelihood(z))`` invariant; it has no setting to tune.

    Parameters
    ----------
    rng_key
        JAX random key.
    z
        Current point ``[n]``, where the log likelihood is finite.
    log_likelihood
        Log likelihood of a point.

    Returns
    -------
    Array
        The next point ``[n]``.

    Notes
    -----
    Source: Murray, Adams & MacKay (2010), Elliptical slice sampling, AISTATS.
    """
    normal_key, level_key, angle_key, shrink_key = jax.random.split(rng_key, 4)
    other = jax.random.normal(normal_key, z.shape, z.dtype)
    level = log_likelihood(z) - jax.random.exponential(level_key, dtype=z.dtype)
    angle = jax.random.uniform(angle_key, dtype=z.dtype, maxval=2 * jnp.pi)

    def point(angle: Array) -> Array:
        return z * jnp.cos(angle) + other * jnp.sin(angle)

    def outside(state: _Bracket) -> Array:
        return ~(state[-1] > level)

    def shrink(state: _Bracket) -> _Bracket:
        key, angle, low, high, _ = state
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        key, angle_key = jax.random.split(key)
        angle = jax.random.uniform(angle_key, dtype=z.dtype, minval=low, maxval=high)
        return key, angle, low, high, log_likelihood(point(angle))

    start = (shrink_key, angle, angle - 2 * jnp.pi, angle, log_likelihood(point(angle)))
    _, angle, *_ = lax.while_loop(outside, shrink, start)
    return point(angle)
