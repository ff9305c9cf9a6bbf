"""Emissions that are partially pooled over judges."""

from dataclasses import dataclass, field
from math import prod
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from evidial_bayes.models.base import Params
from evidial_bayes.models.emission.base import EmissionPrior, Rows
from evidial_bayes.models.priors import LogRatioDirichlet, check_positive, from_log_ratio, inside, to_log_ratio


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PooledRows(EmissionPrior):
    """Judges' rows spread about those of a typical judge, by as much as the votes say.

    In log-ratio coordinates a judge's row is normal about the population's row, with one standard deviation for all
    rows: judges with few votes borrow from the others.

    Parameters
    ----------
    diagonal, off_diagonal
        Dirichlet pseudo-counts of the population's rows, as in `DiagonalDirichlet`.
    spread
        Prior of the standard deviation between judges, in log-ratio units; any distribution on the positive numbers.

    Notes
    -----
    Source: Paun et al. (2018), Comparing Bayesian models of annotation, TACL 6 (hierarchical Dawid–Skene).
    """

    diagonal: float = 8.0
    off_diagonal: float = 1.0
    spread: dist.Distribution = field(default_factory=lambda: dist.HalfNormal(0.5))

    def __post_init__(self) -> None:
        """Check the pseudo-counts."""
        check_positive(self, "diagonal", "off_diagonal")

    def dims(self, rows: Rows) -> dict[str, tuple[str, ...]]:
        """Name the population's rows and the spread about them."""
        return {"population": ("state", "category"), "spread": ()}

    def sample(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Draw the population, then judges as standardised deviations from it."""
        with numpyro.plate("state", rows.n_states, dim=-1):
            centre = numpyro.sample("population_log_ratio", LogRatioDirichlet(self._population(rows)))
        spread = numpyro.sample("spread", self.spread)
        with rows.plates():
            z = numpyro.sample("emission_deviation", dist.Normal(0.0, 1.0).expand([rows.n_categories - 1]).to_event(1))
        population = numpyro.deterministic("population", jnp.exp(from_log_ratio(centre)))
        return from_log_ratio(centre + spread * z), {"population": population, "spread": spread}

    def initial(self, rows: Rows) -> dict[str, Array]:
        """Start all judges alike, at prior counts and the votes by the states that their cells' votes name."""
        votes = jnp.asarray(rows.shared_out)
        counts = self._population(rows) + votes.sum(tuple(range(votes.ndim - 2)))
        support = self.spread.support
        return {
            "population_log_ratio": to_log_ratio(counts / counts.sum(-1, keepdims=True)),
            "spread": jnp.where(support(jnp.asarray(0.3)), 0.3, dist.biject_to(support)(jnp.zeros(()))),
            "emission_deviation": jnp.zeros((*rows.shape, rows.n_categories - 1)),
        }

    def log_prior(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Dirichlet density of the population, and logistic-normal density of the rows on the simplex."""
        emission, population = inside(params["emission"]), inside(params["population"])
        x = dist.Normal(to_log_ratio(population), params["spread"]).log_prob(to_log_ratio(emission))
        # Volume of the log-ratio coordinates on the simplex.
        volume = 0.5 * np.log(rows.n_categories) + jnp.log(emission).sum(-1)
        return {
            "emission": x.sum() - volume.sum(),
            "population": dist.Dirichlet(self._population(rows)).log_prob(population).sum(),
            "spread": self.spread.log_prob(params["spread"]),
        }

    def n_free(self, rows: Rows) -> int:
        """Count categories less one for each row."""
        return prod(rows.shape) * (rows.n_categories - 1)

    def _population(self, rows: Rows) -> Array:
        return self.off_diagonal + (self.diagonal - self.off_diagonal) * jnp.asarray(rows.reads)
