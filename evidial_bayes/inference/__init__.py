"""Estimation: settings with a fit method that returns an ArviZ data tree, and the checks on it."""

# ArviZ leaves a lazy stand-in for numpyro. A submodule imported through the stand-in is loaded twice and
# ends up without its own submodules, so the package itself has to come first.
import numpyro  # noqa: F401
