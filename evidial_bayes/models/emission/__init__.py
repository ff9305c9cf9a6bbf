"""Priors of the emissions, one kind a module."""

# ArviZ leaves a lazy stand-in for numpyro; see `evidial_bayes.models`.
import numpyro  # noqa: F401
