"""Emissions of two categories with a normal linear predictor."""

from dataclasses import dataclass
from math import prod
from typing import final

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from evidial_bayes.models.base import Params
from evidial_bayes.models.emission.base import EmissionPrior, Rows, dims_of, log_emission_of, predictor_of
from evidial_bayes.models.priors import check_positive


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NormalPredictor(EmissionPrior):
    """Probit or logit of the probability of the second category, in a cell of average effect, as normal.

    It is the parameterisation of Qu, Tan & Kutner (1996) and of the R package randomLCA. It has no lean to a diagonal,
    so nothing but the start of a chain and the votes names the classes.

    Parameters
    ----------
    scale
        Standard deviation of the linear predictor about zero, in units of the model's link.
    """

    scale: float = 2.0

    def __post_init__(self) -> None:
        """Check the scale."""
        check_positive(self, "scale")

    def dims(self, rows: Rows) -> dict[str, tuple[str, ...]]:
        """Name the linear predictors."""
        return {"predictor": dims_of(rows)}

    def sample(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Draw linear predictors."""
        with rows.plates():
            predictor = numpyro.sample("predictor", dist.Normal(0.0, self.scale))
        return log_emission_of(predictor, rows.link), {"predictor": predictor}

    def initial(self, rows: Rows) -> dict[str, Array]:
        """Votes by the states that their cells' votes name, with a count for the category that the state reads as."""
        counts = jnp.asarray(rows.shared_out) + 0.5 + jnp.asarray(rows.reads)
        return {"predictor": predictor_of(jnp.log(counts / counts.sum(-1, keepdims=True)), rows.link)}

    def log_prior(self, params: Params, rows: Rows) -> dict[str, Array]:
        """Give the normal density of all linear predictors."""
        return {"predictor": dist.Normal(0.0, self.scale).log_prob(params["predictor"]).sum()}

    def n_free(self, rows: Rows) -> int:
        """Count one for each row."""
        return prod(rows.shape)
