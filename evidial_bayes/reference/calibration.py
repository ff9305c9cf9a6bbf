"""Ways of turning what votes say into probabilities that are true: few numbers, each with a prior.

Dependent votes are counted as if they were independent, and latent classes need not be what people call the states: a
posterior that is exact under its model is too sure, and may be sure of the wrong thing. A calibration maps what the
votes say about a cell to state probabilities by a handful of parameters, about which cells of known state inform.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

import jax
import jax.numpy as jnp
from jax import Array
from scipy.linalg import helmert

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.models.priors import check_positive
from evidial_bayes.reference.one_pass import OnePass

SOURCES = ("posterior", "prevalence", "families", "one_pass", "vote_share", "family_shares")
# Kinds that are one source for each judge family of several judges, and one for all single judges.
BY_FAMILY = ("families", "one_pass")


class Calibration(ABC):
    """A map from sources to state probabilities; a pytree whose fields are traced hyperparameters.

    Parameters are functions of standard normal numbers, so that one sampler serves all kinds, and a calibration without
    known cells is its prior.
    """

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Kinds of sources, any of `SOURCES`, in order."""

    @abstractmethod
    def one_pass(self) -> OnePass | None:
        """How emissions are estimated once, where a source needs them."""

    @abstractmethod
    def centred(self, effective_share: float) -> "Calibration":
        """Set what is left open to the effective over the nominal number of judges."""

    @abstractmethod
    def size(self, kinds: tuple[str, ...], n_states: int) -> int:
        """Count the standard normal numbers; ``kinds`` has one entry for each source."""

    @abstractmethod
    def parameters(self, z: Array, kinds: tuple[str, ...], n_states: int) -> dict[str, Array]:
        """Make parameters of standard normal numbers."""

    @abstractmethod
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the parameters."""

    @abstractmethod
    def log_probabilities(self, parameters: Mapping[str, Array], sources: Array) -> Array:
        """Log probability of each state.

        Parameters
        ----------
        parameters
            As `parameters` makes them.
        sources
            Log probability by source, up to a constant over states: ``[source, pattern, state]``.

        Returns
        -------
        Array
            ``[pattern, state]``.
        """


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LogLinear(Calibration):
    """Powers of the sources, multiplied: ``P(Z = k) ∝ exp( Σ_s η_s log q_s(k) + o_k )``.

    An exponent below one says that a source is surer than it may be, and offsets move states that the classes take for
    others. With the posterior as the only source this is tempering; with one source a judge family, family exponents.

    ============  ======  ======================
    parameter     dims    scale
    ============  ======  ======================
    ``exponent``  source  positive
    ``offset``    state   log-odds, sum to zero
    ============  ======  ======================

    Parameters
    ----------
    sources
        What is multiplied, and the prior median of its exponent: ``posterior`` of the state under the model;
        ``prevalence`` of the model; ``families``: the model's probability of a judge family's votes, a source for each
        family of several judges and one for all single judges together; ``one_pass``: the same under emissions that are
        estimated once, from vote shares and known cells; ``vote_share`` of all votes; ``family_shares``: the mean of
        the families' vote shares. None as median: the effective over the nominal number of judges.
    common, spread
        Standard deviation of the log of an exponent, and of those of single families about that of all.
    offset, offset_spread
        Median of the standard deviation of the offsets, and standard deviation of its log: offsets that the known
        cells do not ask for stay small.
    once
        How the emissions of ``one_pass`` are estimated.

    Raises
    ------
    InputError
        Unknown source, or a number that is not positive.
    """

    sources: dict[str, float | None] = field(default_factory=lambda: {"posterior": 0.3})
    common: float = 1.0
    spread: float = 0.5
    offset: float = 0.5
    offset_spread: float = 0.8
    once: OnePass = field(default_factory=OnePass)

    def __post_init__(self) -> None:
        """Check sources and scales."""
        if not self.sources:
            raise InputError(f"calibration.sources is empty; allowed: {', '.join(SOURCES)}.")
        for source, median in self.sources.items():
            if source not in SOURCES:
                raise InputError(
                    f"calibration.sources: '{source}' is unknown.{suggest(source, SOURCES)} "
                    f"Allowed: {', '.join(SOURCES)}."
                )
            # Inside a traced program medians are arrays, checked already.
            if isinstance(median, int | float | str) and not (isinstance(median, int | float) and 0 < median):
                raise InputError(f"calibration.sources.{source}: {median!r} is not usable; allowed: a positive number.")
        check_positive(self, "common", "spread", "offset", "offset_spread")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of sources."""
        return tuple(self.sources)

    def one_pass(self) -> OnePass | None:
        """How emissions are estimated once, where a source needs them."""
        return self.once if "one_pass" in self.sources else None

    def centred(self, effective_share: float) -> "LogLinear":
        """Set medians that are left open."""
        medians: dict[str, float | None]
        medians = {kind: effective_share if m is None else m for kind, m in self.sources.items()}
        return replace(self, sources=medians)

    def size(self, kinds: tuple[str, ...], n_states: int) -> int:
        """Count one number for each kind and each source, one for the scale of the offsets, and the offsets."""
        return len(self.kinds) + len(kinds) + 1 + n_states - 1

    def parameters(self, z: Array, kinds: tuple[str, ...], n_states: int) -> dict[str, Array]:
        """Exponents and offsets."""
        n_kinds, n_sources = len(self.kinds), len(kinds)
        common, each, scale, offset = jnp.split(z, [n_kinds, n_kinds + n_sources, n_kinds + n_sources + 1])
        exponents = []
        for place, kind in enumerate(kinds):
            shift = self.common * common[self.kinds.index(kind)]
            # The only source of its kind has nothing to differ from.
            shift += self.spread * each[place] if kinds.count(kind) > 1 else 0.0
            exponents.append(jnp.asarray(self.sources[kind]) * jnp.exp(shift))
        return {
            "exponent": jnp.stack(exponents),
            "offset": self.offset * jnp.exp(self.offset_spread * scale) * offset @ helmert(n_states),
        }

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the parameters."""
        return {"exponent": ("source",), "offset": ("state",)}

    def log_probabilities(self, parameters: Mapping[str, Array], sources: Array) -> Array:
        """Log probability of each state: ``[pattern, state]``."""
        logits = jnp.tensordot(parameters["exponent"], sources, axes=1) + parameters["offset"]
        return jax.nn.log_softmax(logits, axis=-1)


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Confusion(Calibration):
    """The state behind the class: ``P(Z = k) = Σ_a q(a) C_ak`` with q the posterior of the classes.

    ``confusion`` has dims ``apparent_state, state``: the probability of each state where the model says another. Its
    rows are logistic-normal about ones that are right a share ``right`` of the time.

    Parameters
    ----------
    right
        Probability that the posterior's class is the state, at the prior's median.
    spread
        Standard deviation of the rows in log-ratio coordinates.

    Raises
    ------
    InputError
        A share that is none, or a spread that is not positive.
    """

    right: float = 0.8
    spread: float = 1.0

    def __post_init__(self) -> None:
        """Check share and spread."""
        check_positive(self, "right", "spread")
        if isinstance(self.right, int | float) and not self.right < 1:
            raise InputError(f"calibration.right: {self.right!r} is not usable; allowed: a share between 0 and 1.")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The posterior alone."""
        return ("posterior",)

    def one_pass(self) -> None:
        """No source needs it."""
        return

    def centred(self, effective_share: float) -> "Confusion":
        """Nothing is left open."""
        return self

    def size(self, kinds: tuple[str, ...], n_states: int) -> int:
        """Count states less one for each row."""
        return n_states * (n_states - 1)

    def parameters(self, z: Array, kinds: tuple[str, ...], n_states: int) -> dict[str, Array]:
        """Rows of the confusion."""
        eye = jnp.eye(n_states)
        median = jnp.log(self.right * eye + (1 - self.right) * (1 - eye) / max(n_states - 1, 1))
        shift = self.spread * z.reshape(n_states, n_states - 1) @ helmert(n_states)
        return {"confusion": jax.nn.softmax(median + shift, axis=-1)}

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of the parameters."""
        return {"confusion": ("apparent_state", "state")}

    def log_probabilities(self, parameters: Mapping[str, Array], sources: Array) -> Array:
        """Log probability of each state: ``[pattern, state]``."""
        return jnp.log(jax.nn.softmax(sources[0], axis=-1) @ parameters["confusion"])
