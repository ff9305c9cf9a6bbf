"""Emission rows with Dirichlet priors of their own."""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import final

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from evidial_bayes.models.base import Params
from evidial_bayes.models.emission.base import EmissionPrior, Rows
from evidial_bayes.models.priors import LogRatioDirichlet, check_positive, from_log_ratio, inside, to_log_ratio


class DirichletRows(EmissionPrior):
    """Independent Dirichlet rows; what their pseudo-counts are is left to the two kinds below."""

    @abstractmethod
    def concentration(self, rows: Rows) -> Array:
        """Pseudo-counts ``[*lead, state, category]``."""

    def dims(self, rows: Rows) -> dict[str, tuple[str, ...]]:
        """No site but the emissions."""
        return {}

    def sample(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Draw rows in log-ratio coordinates."""
        with rows.plates():
            x = numpyro.sample("emission_log_ratio", LogRatioDirichlet(self.concentration(rows)))
        return from_log_ratio(x), {}

    def initial(self, rows: Rows) -> dict[str, Array]:
        """Prior counts and the votes by the states that their cells' votes name, as means."""
        counts = self.concentration(rows) + jnp.asarray(rows.shared_out)
        return {"emission_log_ratio": to_log_ratio(counts / counts.sum(-1, keepdims=True))}

    def log_prior(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Dirichlet density of all rows."""
        return {"emission": dist.Dirichlet(self.concentration(rows)).log_prob(inside(params["emission"])).sum()}

    def n_free(self, rows: Rows) -> int:
        """Count categories less one for each row."""
        return prod(rows.shape) * (rows.n_categories - 1)


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalDirichlet(DirichletRows):
    """Dirichlet rows that lean to the category which the state reads as.

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
        check_positive(self, "diagonal", "off_diagonal")

    def concentration(self, rows: Rows) -> Array:
        """Pseudo-counts ``[*lead, state, category]``."""
        lean = self.off_diagonal + (self.diagonal - self.off_diagonal) * jnp.asarray(rows.reads)
        return jnp.broadcast_to(lean, (*rows.shape, rows.n_categories))


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AnchoredDirichlet(DirichletRows):
    """Dirichlet rows whose pseudo-counts are the votes on cells whose state is known by construction.

    The votes enter as if every anchor had average clarity, and leave the likelihood for it. Letting them stay there
    (`DiagonalDirichlet`) is the exact way, in which each anchor has a cell effect of its own; this is the way of the
    source paper, and lets anchors count for less than a vote each.

    Parameters
    ----------
    weight
        Pseudo-counts that a vote on an anchor is worth.
    diagonal, off_diagonal
        Pseudo-counts without any anchor, as in `DiagonalDirichlet`.

    Notes
    -----
    Source: EviDial (arXiv 2610.27541), App. F.
    """

    weight: float = 1.0
    diagonal: float = 2.0
    off_diagonal: float = 1.0
    uses_anchors = True

    def __post_init__(self) -> None:
        """Check the pseudo-counts."""
        check_positive(self, "weight", "diagonal", "off_diagonal")

    def concentration(self, rows: Rows) -> Array:
        """Pseudo-counts ``[*lead, state, category]``."""
        lean = self.off_diagonal + (self.diagonal - self.off_diagonal) * jnp.asarray(rows.reads)
        return lean + self.weight * jnp.asarray(rows.anchors)
