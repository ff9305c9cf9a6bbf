"""Intervals from draws, with undefined draws left out and counted."""

from typing import Literal

import numpy as np
from arviz_stats import hdi
from numpy.typing import NDArray

Interval = Literal["quantile", "hdi"]


def interval(
    values: NDArray[np.floating], kind: Interval, ci_prob: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds that hold a share ``ci_prob`` of the defined draws.

    Parameters
    ----------
    values
        Float ``[draw, …]``; NaN marks a draw in which the quantity is undefined.
    kind
        ``quantile`` leaves the same share out on both sides; ``hdi`` is the shortest interval.
    ci_prob
        Share of the draws inside, between 0 and 1.

    Returns
    -------
    lower, upper : numpy.ndarray
        Float ``[…]``; NaN where no draw is defined.
    """
    bounds = np.full((2, *values.shape[1:]), np.nan)
    for index in np.ndindex(values.shape[1:]):
        column = values[:, *index]
        defined = column[~np.isnan(column)]
        if defined.size and kind == "hdi":
            bounds[:, *index] = hdi(defined, prob=ci_prob)
        elif defined.size:
            bounds[:, *index] = np.quantile(defined, [(1 - ci_prob) / 2, (1 + ci_prob) / 2])
    return bounds[0], bounds[1]


def mean_of_defined(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean over the draws in which a quantity is defined; a constant comes back exactly.

    Parameters
    ----------
    values
        Float ``[draw, …]``.

    Returns
    -------
    numpy.ndarray
        Float ``[…]``; NaN where no draw is defined.
    """
    defined = ~np.isnan(values)
    origin = np.where(defined, values, np.inf).min(0)  # differences from it are exactly zero for a constant
    number = defined.sum(0)
    shift = np.where(defined, values - np.where(number > 0, origin, 0.0), 0.0).sum(0) / np.maximum(number, 1)
    return np.where(number > 0, origin + shift, np.nan)


def undefined_share(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Share of the draws ``[draw, …]`` in which a quantity is undefined; float ``[…]`` between 0 and 1."""
    return np.isnan(values).mean(0)
