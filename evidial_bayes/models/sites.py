"""Sites of a NumPyro program that know their prior, their dims and where to start.

A model is a list of sites and a likelihood of their values; everything that has to be said once for each site (the
program, the start, the density of the prior, the number of free parameters) is said here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import final

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from evidial_bayes.models.base import Params
from evidial_bayes.models.emission.base import EmissionPrior, Rows, dims_of
from evidial_bayes.models.priors import LogRatioDirichlet, ZeroSumSlopes, from_log_ratio, inside, to_log_ratio


class Site(ABC):
    """One or more sites of a posterior, and how they come about."""

    @abstractmethod
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims by name of the site, as the posterior reports it."""

    @abstractmethod
    def sample(self) -> dict[str, Array]:
        """Run this part of the NumPyro program."""

    @abstractmethod
    def initial(self) -> dict[str, Array]:
        """Central starting values by sample site."""

    @abstractmethod
    def log_prior(self, params: Params) -> dict[str, Array]:
        """Log density by site, on the scale on which the posterior reports it."""

    @abstractmethod
    def n_free(self) -> int:
        """Count the freely varying parameters that the likelihood sees."""


@final
@dataclass(frozen=True, eq=False)
class SimplexSite(Site):
    """Probabilities along the last dim, with a Dirichlet prior, carried in log-ratio coordinates.

    Parameters
    ----------
    name
        Name of the site.
    names
        Dims of the site.
    concentration
        Pseudo-counts of the prior, of the site's shape.
    counts
        Counts that the start adds to them.
    """

    name: str
    names: tuple[str, ...]
    concentration: Array
    counts: ArrayLike = 0.0

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the probabilities."""
        return {self.name: self.names}

    def sample(self) -> dict[str, Array]:
        """Draw coordinates; report probabilities."""
        plates = list(zip(self.names, self.concentration.shape, strict=True))[:-1]
        with ExitStack() as stack:
            for place, (name, size) in enumerate(plates):
                stack.enter_context(numpyro.plate(name, size, dim=place - len(plates)))
            x = numpyro.sample(f"{self.name}_log_ratio", LogRatioDirichlet(self.concentration))
        return {self.name: numpyro.deterministic(self.name, jnp.exp(from_log_ratio(x)))}

    def initial(self) -> dict[str, Array]:
        """Prior means, with the counts."""
        total = self.concentration + jnp.asarray(self.counts)
        return {f"{self.name}_log_ratio": to_log_ratio(total / total.sum(-1, keepdims=True))}

    def log_prior(self, params: Params) -> dict[str, Array]:
        """Dirichlet density."""
        return {self.name: dist.Dirichlet(self.concentration).log_prob(inside(params[self.name])).sum()}

    def n_free(self) -> int:
        """Count categories less one for each row."""
        *rows, last = self.concentration.shape
        return prod(rows) * (last - 1)


@final
@dataclass(frozen=True, eq=False)
class SlopeSite(Site):
    """Effects of covariates on the log-odds of states, ``slope [state, effect]``.

    Parameters
    ----------
    prior
        Distribution of one covariate's effects.
    n_states, n_effects
        Sizes.
    """

    prior: ZeroSumSlopes
    n_states: int
    n_effects: int

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the effects."""
        return {"slope": ("state", "effect")}

    def sample(self) -> dict[str, Array]:
        """Draw the effects of each covariate on all states."""
        with numpyro.plate("effect", self.n_effects):
            by_effect = numpyro.sample("slope_by_effect", self.prior.over(self.n_states))
        return {"slope": numpyro.deterministic("slope", by_effect.T)}

    def initial(self) -> dict[str, Array]:
        """No effect."""
        return {"slope_by_effect": jnp.zeros((self.n_effects, self.n_states))}

    def log_prior(self, params: Params) -> dict[str, Array]:
        """Density of all effects."""
        return {"slope": self.prior.over(self.n_states).log_prob(params["slope"].T).sum()}

    def n_free(self) -> int:
        """Count states less one for each covariate."""
        return self.n_effects * (self.n_states - 1)


@final
@dataclass(frozen=True, eq=False)
class LoadingSite(Site):
    """Loadings of an effect of variance one, or the standard deviation of one that is not scaled.

    Parameters
    ----------
    name
        Name of the site.
    names, shape
        Dims and sizes.
    prior
        Distribution of a loading. On the positive numbers the sign of the effect is identified. On the whole line an
        effect and its mirror image are the same; the one with a positive mean of the loadings is reported.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    prior: dist.Distribution

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the loadings."""
        return {self.name: self.names}

    def sample(self) -> dict[str, Array]:
        """Draw loadings, and choose between a signed one and its mirror image."""
        with ExitStack() as stack:
            for place, (name, size) in enumerate(zip(self.names, self.shape, strict=True)):
                stack.enter_context(numpyro.plate(name, size, dim=place - len(self.names)))
            value = numpyro.sample(self._sampled(), self.prior)
        if not self._signed():
            return {self.name: value}
        mirrored = jnp.where(jnp.mean(value) < 0, -value, value)
        return {self.name: numpyro.deterministic(self.name, mirrored)}

    def initial(self) -> dict[str, Array]:
        """Small loadings, or the middle of where the prior allows them."""
        support = self.prior.support
        start = jnp.where(support(jnp.asarray(0.5)), 0.5, dist.biject_to(support)(jnp.zeros(())))
        return {self._sampled(): jnp.full(self.shape, start)}

    def log_prior(self, params: Params) -> dict[str, Array]:
        """Density of all loadings; a signed one stands for itself and its mirror image."""
        value = params[self.name]
        density = self.prior.log_prob(value).sum()
        if self._signed():
            density = jnp.logaddexp(density, self.prior.log_prob(-value).sum())
        return {self.name: density}

    def n_free(self) -> int:
        """Count one for each loading."""
        return prod(self.shape)

    def _signed(self) -> bool:
        return self.prior.support is constraints.real

    def _sampled(self) -> str:
        return f"{self.name}_signed" if self._signed() else self.name


@final
@dataclass(frozen=True, eq=False)
class EmissionSite(Site):
    """Emissions with whatever prior they have.

    Parameters
    ----------
    prior
        Prior of the emissions.
    rows
        The rows of the panel.
    """

    prior: EmissionPrior
    rows: Rows

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the emissions, then of what they are made of."""
        return {"emission": (*dims_of(self.rows), "category"), **self.prior.dims(self.rows)}

    def sample(self) -> dict[str, Array]:
        """Draw what the prior draws; report emissions."""
        log_emission, others = self.prior.sample(self.rows)
        return {"emission": numpyro.deterministic("emission", jnp.exp(log_emission)), **others}

    def initial(self) -> dict[str, Array]:
        """Take the prior's start."""
        return self.prior.initial(self.rows)

    def log_prior(self, params: Params) -> dict[str, Array]:
        """Density of the emissions, or of what they are made of."""
        return self.prior.log_prior(params, self.rows)

    def n_free(self) -> int:
        """Count the free parameters of the prior's rows."""
        return self.prior.n_free(self.rows)


def merged[T](parts: Iterable[dict[str, T]]) -> dict[str, T]:
    """Put what several sites give into one mapping, in order."""
    return {name: value for part in parts for name, value in part.items()}
