"""Settings of the compiler that every fit shares."""

from contextlib import AbstractContextManager
from typing import Literal

import jax
from platformdirs import user_cache_path

type Precision = Literal["float64", "float32"]


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, so that the next process does not compile again.

    A cache that was chosen before (``jax_compilation_cache_dir``, ``JAX_COMPILATION_CACHE_DIR``) is left as it is.
    """
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(user_cache_path("evidial_bayes") / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def precision(floats: Precision) -> AbstractContextManager[None]:
    """Context in which JAX computes with floats of this size, whatever it is set to outside."""
    return jax.enable_x64(floats == "float64")
