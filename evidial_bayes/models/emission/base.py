"""What every prior of emissions is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from jax.scipy.special import log_ndtr, ndtri
from jax.typing import ArrayLike

from evidial_bayes.models.base import Params

type Link = Literal["logit", "probit"]


@dataclass(frozen=True, eq=False)
class Rows:
    """The emission rows of a panel: one distribution over categories for each judge and state.

    Parameters
    ----------
    reads
        Float ``[state, category]``: one-hot category that a faultless judge casts in each state.
    lead
        Names and sizes of the dims before the state: judge, or stratum and judge.
    anchors
        Float ``[*lead, state, category]``: votes on cells whose state is known by construction.
    link
        Scale on which effects are added to emissions.
    shared_out
        Float ``[*lead, state, category]``: all votes, each shared out to the states that its cell's votes name: where
        a search or a chain may start.
    """

    reads: ArrayLike
    lead: tuple[tuple[str, int], ...]
    anchors: ArrayLike
    link: Link
    shared_out: ArrayLike

    @property
    def n_states(self) -> int:
        """Number of states."""
        return jnp.shape(self.reads)[0]

    @property
    def n_categories(self) -> int:
        """Number of vote categories."""
        return jnp.shape(self.reads)[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dims before the category."""
        return (*(size for _, size in self.lead), self.n_states)

    @contextmanager
    def plates(self, *, states: bool = True) -> Iterator[None]:
        """Plates of the dims before the category, or before the state."""
        dims = (*self.lead, ("state", self.n_states)) if states else self.lead
        with ExitStack() as stack:
            for place, (name, size) in enumerate(dims):
                stack.enter_context(numpyro.plate(name, size, dim=place - len(dims)))
            yield


class EmissionPrior(ABC):
    """How likely emissions are before any vote is seen; a pytree whose fields are traced hyperparameters.

    ``emission`` is always a site of the posterior; priors that make it of fewer numbers name those as well.
    """

    # Whether votes on cells known by construction enter as pseudo-counts, and not in the likelihood.
    uses_anchors: bool = False

    @abstractmethod
    def dims(self, rows: Rows) -> dict[str, tuple[str, ...]]:
        """Dims of the sites that stand beside ``emission`` in the posterior."""

    @abstractmethod
    def sample(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Run the NumPyro program: log emissions ``[*lead, state, category]``, and the sites of `dims`."""

    @abstractmethod
    def initial(self, rows: Rows) -> dict[str, Array]:
        """Central starting values by sample site."""

    @abstractmethod
    def log_prior(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Log density by site, on the scale on which the posterior reports it."""

    @abstractmethod
    def n_free(self, rows: Rows) -> int:
        """Count the freely varying parameters that the likelihood sees."""


def dims_of(rows: Rows, *, states: bool = True) -> tuple[str, ...]:
    """Names of the dims before the category, or before the state."""
    return (*(name for name, _ in rows.lead), *(("state",) if states else ()))


def predictor_of(log_emission: Array, link: Link) -> Array:
    """Linear predictor ``[...]`` of the second of two categories, from log emissions ``[..., 2]``."""
    if link == "logit":
        return log_emission[..., 1] - log_emission[..., 0]
    # The quantile of the smaller probability is the accurate one. (The gradient of a minimum is none at one half.)
    second = log_emission[..., 1] < log_emission[..., 0]
    quantile = ndtri(jnp.exp(jnp.where(second, log_emission[..., 1], log_emission[..., 0])))
    return jnp.where(second, quantile, -quantile)


def log_emission_of(predictor: Array, link: Link) -> Array:
    """Log emissions ``[..., 2]`` of linear predictors ``[...]``."""
    pair = jnp.stack([-predictor, predictor], axis=-1)
    return log_ndtr(pair) if link == "probit" else jax.nn.log_sigmoid(pair)
