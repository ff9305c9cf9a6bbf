"""Measurement models: frozen dataclasses whose fields are their priors."""

# ArviZ leaves a lazy stand-in for numpyro. A submodule imported through the stand-in is loaded twice and
# ends up without its own submodules, so the package itself has to come first.
import numpyro  # noqa: F401
