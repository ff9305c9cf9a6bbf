import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import sqrtm

from evidial_bayes.inference.gaussian import gaussian_at


def test_a_normal_density_is_found_as_it_is():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    covariance, mean = a @ a.T + np.eye(4), rng.normal(size=4)
    precision = jnp.asarray(np.linalg.inv(covariance))
    density = jax.jit(jax.value_and_grad(lambda x: -0.5 * (x - mean) @ precision @ (x - mean)))
    found, curvature = gaussian_at(density, mean, 1e-6)
    np.testing.assert_allclose(found.factor, sqrtm(covariance), atol=1e-7)
    np.testing.assert_allclose(curvature, np.linalg.eigvalsh(precision), rtol=1e-6)


def test_flat_and_upward_directions_get_the_least_precision():
    density = jax.jit(jax.value_and_grad(lambda x: -2 * x[0] ** 2 + 3 * x[1] ** 2 + 0 * x[2]))
    found, curvature = gaussian_at(density, np.zeros(3), 0.25)
    np.testing.assert_allclose(curvature, [-6, 0, 4], atol=1e-6)
    np.testing.assert_allclose(found.factor @ found.factor.T, np.diag([1 / 4, 4, 4]), atol=1e-6)
