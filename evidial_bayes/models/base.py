"""What every measurement model is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from jax import Array

from evidial_bayes.data.panel import Panel

type Params = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A panel as one model sees it: numbers for JAX, names for people.

    Parameters
    ----------
    data
        JAX pytree, the argument of the NumPyro program.
    pattern
        Int ``[cell]``: position of every cell on the dim ``pattern`` of `data`.
    dims
        Names of the dims of every site that belongs in a posterior; sites that are not named here are internal. Sites
        are in an order in which dims appear for the first time as they stand in every site: ArviZ labels the entries
        of a variable by the order of the dims of the whole data set.
    coords
        Labels along those dims.
    effects
        Names of the dims of effects that the program sums out and `MeasurementModel.draw_effects` draws afterwards.
    """

    data: Any
    pattern: np.ndarray
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, pd.Index]
    effects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class MeasurementModel(Protocol):
    """How votes arise from states.

    A frozen dataclass whose fields are its priors and structural switches, registered as a JAX pytree: priors are
    traced data, switches are static, so a new prior value never recompiles. An instance is a NumPyro program of
    `Prepared.data` and can be handed to any NumPyro inference algorithm as it is.
    """

    def prepare(self, panel: Panel) -> Prepared:
        """Check what the model needs of a panel and turn it into arrays."""
        ...

    def __call__(self, data: Any) -> None:
        """Run the NumPyro program: priors and the likelihood of all votes."""
        ...

    def initial(self, data: Any) -> dict[str, Array]:
        """Central starting values by sample site."""
        ...

    def total_log_likelihood(self, params: Params, data: Any) -> Array:
        """Log probability of all votes given parameters, as the program weighs them: a scalar."""
        ...

    def log_likelihood(self, params: Params, data: Any) -> Array:
        """Log probability of one cell's votes given parameters, and effects where they are given: ``[pattern]``."""
        ...

    def log_prior(self, params: Params, data: Any) -> dict[str, Array]:
        """Log prior density by site, a scalar each, on the scale on which the posterior reports the site."""
        ...

    def state_probabilities(self, params: Params, data: Any) -> Array:
        """Probability of each state given the votes and parameters: ``[pattern, state]``."""
        ...

    def log_evidence(self, params: Params, data: Any) -> tuple[Array, Array]:
        """Log prevalence ``[pattern, state]``, and of each judge family's votes ``[judge_family, pattern, state]``."""
        ...

    def draw_effects(self, rng_key: Array, params: Params, data: Any) -> dict[str, Array]:
        """Draw the effects that the program sums out and that cells share, given votes and parameters.

        With them among the parameters, cells are independent again. Most models have none and return nothing.
        """
        ...

    def n_parameters(self, data: Any) -> int:
        """Count the freely varying parameters that the likelihood sees."""
        ...
