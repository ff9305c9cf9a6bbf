"""Emissions made of accuracies: what is not read right is spread evenly over the wrong categories."""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from evidial_bayes.models.base import Params
from evidial_bayes.models.emission.base import EmissionPrior, Rows, dims_of
from evidial_bayes.models.priors import check_positive, inside


class AccuracyRows(EmissionPrior):
    """Rows made of one accuracy each, which several rows may share."""

    by_state: ClassVar[bool]
    correct: float
    wrong: float

    @abstractmethod
    def rows_of(self, accuracy: Array) -> Array:
        """Accuracies ``[*lead, state or 1, 1]`` of all rows."""

    def dims(self, rows: Rows) -> dict[str, tuple[str, ...]]:
        """Name the accuracies."""
        return {"accuracy": dims_of(rows, states=self.by_state)}

    def sample(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Draw accuracies and spread what is left."""
        with rows.plates(states=self.by_state):
            accuracy = numpyro.sample("accuracy", dist.Beta(self.correct, self.wrong))
        right = self.rows_of(accuracy)
        wrong = jnp.log(inside(1.0 - right)) - jnp.log(rows.n_categories - 1)
        log_emission = jnp.where(jnp.asarray(rows.reads) > 0, jnp.log(inside(right)), wrong)
        return log_emission, {"accuracy": accuracy}

    def initial(self, rows: Rows) -> dict[str, Array]:
        """Prior counts and the votes by the states that their cells' votes name, as means."""
        votes = jnp.asarray(rows.shared_out)
        axes = -1 if self.by_state else (-2, -1)
        right, every = (votes * jnp.asarray(rows.reads)).sum(axes), votes.sum(axes)
        return {"accuracy": (self.correct + right) / (self.correct + self.wrong + every)}

    def log_prior(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Beta density of all accuracies."""
        edge = jnp.finfo(jnp.result_type(params["accuracy"])).eps
        accuracy = jnp.clip(params["accuracy"], edge, 1 - edge)
        return {"accuracy": dist.Beta(self.correct, self.wrong).log_prob(accuracy).sum()}

    def n_free(self, rows: Rows) -> int:
        """Count one for each accuracy."""
        return prod(rows.shape if self.by_state else rows.shape[:-1])


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneCoin(AccuracyRows):
    """One accuracy for each judge, the same in every state (the one-coin model of crowdsourcing).

    Parameters
    ----------
    correct, wrong
        Beta pseudo-counts of right and wrong votes.

    Notes
    -----
    Source: Zhang, Chen, Zhou & Jordan (2016), Spectral methods meet EM, JMLR 17(102).
    """

    correct: float = 8.0
    wrong: float = 2.0
    by_state: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the pseudo-counts."""
        check_positive(self, "correct", "wrong")

    def rows_of(self, accuracy: Array) -> Array:
        """Accuracies ``[*lead, 1, 1]``."""
        return accuracy[..., None, None]


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClassConditional(AccuracyRows):
    """One accuracy for each judge and state.

    Parameters
    ----------
    correct, wrong
        Beta pseudo-counts of right and wrong votes.

    Notes
    -----
    Source: Li & Yu (2014), Error rate bounds and iterative weighted majority voting for crowdsourcing,
    arXiv 1411.4086; in the R package rater it is the class-conditional Dawid–Skene model.
    """

    correct: float = 8.0
    wrong: float = 2.0
    by_state: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the pseudo-counts."""
        check_positive(self, "correct", "wrong")

    def rows_of(self, accuracy: Array) -> Array:
        """Accuracies ``[*lead, state, 1]``."""
        return accuracy[..., None]
