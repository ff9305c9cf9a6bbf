"""Settings: which sources of uncertainty an interval carries."""

from dataclasses import dataclass
from typing import get_args

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.uncertainty.intervals import Interval
from evidial_bayes.uncertainty.resample import Weights

MIN_DRAWS = 100  # fewer leave a 95 % interval with two draws or so outside on either side


@dataclass(frozen=True)
class Uncertainty:
    """Which sources of uncertainty an interval carries, and how it is read off the draws.

    Parameters
    ----------
    states
        Draw the states given the parameters; off: the most probable state.
    parameters
        Let the parameters of the reference vary; off: their average.
    participants
        Resample participants; off: the participants as observed.
    weights
        ``bayesian`` (Dirichlet) or ``multinomial`` (classical bootstrap) participant weights.
    draws
        Number of draws, at least 100. The draws of the reference are thinned or repeated evenly to this
        number.
    interval
        ``quantile`` or ``hdi``.
    ci_prob
        Probability of the intervals, between 0 and 1.

    Raises
    ------
    InputError
        A setting outside what is allowed.
    """

    states: bool = True
    parameters: bool = True
    participants: bool = True
    weights: Weights = "bayesian"
    draws: int = 4000
    interval: Interval = "quantile"
    ci_prob: float = 0.95

    def __post_init__(self) -> None:
        """Check every setting."""
        for key in ("states", "parameters", "participants"):
            value = getattr(self, key)
            if not isinstance(value, bool):
                raise InputError(f"uncertainty.{key}={value!r}: allowed are true and false.")
        for key, allowed in (("weights", get_args(Weights)), ("interval", get_args(Interval))):
            value = getattr(self, key)
            if value not in allowed:
                raise InputError(
                    f"uncertainty.{key}={value!r}: allowed are {', '.join(allowed)}.{suggest(value, allowed)}"
                )
        if not isinstance(self.draws, int) or isinstance(self.draws, bool) or self.draws < MIN_DRAWS:
            raise InputError(f"uncertainty.draws={self.draws!r}: allowed are whole numbers from {MIN_DRAWS}.")
        if not isinstance(self.ci_prob, float) or not 0 < self.ci_prob < 1:
            raise InputError(f"uncertainty.ci_prob={self.ci_prob!r}: allowed are numbers between 0 and 1.")
