"""The three pictures of an audit, drawn without pyplot: nothing global is touched, no display is needed.

Every figure says in its title what it estimates, keeps one order and one look per state, and reads in grey.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from evidial_bayes.export.atomic import replacing
from evidial_bayes.export.canvas import (
    GRID,
    INK,
    PALE,
    SYSTEM_COLOURS,
    canvas,
    legend,
    limits,
    percent,
    spread,
    state_colours,
    system_names,
)

type Style = dict[str, Any]

HATCHES = ("", "///")  # every second state is hatched
NARROW = 0.045  # a share below it has no room for its number
FULL_CIRCLE = 320.0  # area, in square points, of the circle of a system that answers everything
RIVAL: Style = {"linestyle": "none", "marker": "D", "markerfacecolor": "none", "markeredgecolor": SYSTEM_COLOURS[1]}


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, whole or not at all."""
    with replacing(path) as file:
        FigureCanvasAgg(figure).print_png(str(file))
    return path


def state_composition(shares: xr.DataArray, ci_prob: float) -> Figure:
    """Share of cells in every state, by source, as stacked bars.

    Parameters
    ----------
    shares
        Posterior draws ``[draw, source, state]``.
    ci_prob
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    matplotlib.figure.Figure
        One bar per source. A whisker above it spans the interval of a boundary, the sum of shares left of it.
    """
    sources = [str(source) for source in shares["source"].values]
    states = [str(state) for state in shares["state"].values]
    mean = shares.mean("draw").values
    edges = mean.cumsum(-1)
    tail = (1 - ci_prob) / 2
    low, high = shares.cumsum("state").quantile([tail, 1 - tail], dim="draw").values
    figure, axes = canvas(
        "Share of cells in each evidence state, by source: posterior mean; whiskers above a bar span the "
        f"{ci_prob:.0%} interval of its boundaries",
        height=1.9 + 0.8 * len(sources),
        names=sources,
    )
    rows = np.arange(len(sources))[::-1]
    bar, step = 0.5, 0.34 / max(len(states) - 1, 1)
    looks: list[Style] = [
        {"facecolor": colour, "hatch": HATCHES[s % 2], "edgecolor": "white"}
        for s, colour in enumerate(state_colours(len(states)))
    ]
    for s, look in enumerate(looks):
        axes.barh(rows, mean[:, s], left=edges[:, s] - mean[:, s], height=bar, linewidth=0.8, **look)
        for row, share, edge in zip(rows, mean[:, s], edges[:, s], strict=True):
            if share >= NARROW:
                _number_on_bar(axes, edge - share / 2, row, share)
    for s, look in enumerate(looks[1:]):  # one level per boundary, so that those of narrow states stay apart
        level = rows + bar / 2 + step * (s + 0.7)
        axes.hlines(level, low[:, s], high[:, s], color=look["facecolor"], linewidth=2.2)
        axes.vlines(edges[:, s], rows + bar / 2, level, color=INK, linewidth=0.5)
        axes.plot(edges[:, s], level, "o", color=INK, markersize=2.6)
    axes.set(xlim=(0, 1), ylim=(-0.4, len(sources) - 0.3), yticks=rows, yticklabels=sources)
    axes.set_xlabel("share of cells")
    axes.xaxis.set_major_formatter(percent)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    legend(
        figure,
        [Patch(label=state.replace("_", " "), **look) for state, look in zip(states, looks, strict=True)],
    )
    return figure


def ucr(table: pd.DataFrame, rival: str, ci_prob: float) -> Figure:
    """Unsupported-correct rate of every system, beside what a reference taken as fixed would claim.

    Parameters
    ----------
    table
        The audit table, one row per model × method × metric.
    rival
        Name of the reference whose columns are drawn as open diamonds.
    ci_prob
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    matplotlib.figure.Figure
        One row per system, in the table's order. Systems whose UCR is undefined are named under the axis.
    """
    rows = table[table["metric"] == "ucr"]
    drawn, undefined = rows[rows["estimate"].notna()], rows[rows["estimate"].isna()]
    names = system_names(drawn)
    figure, axes = canvas(
        "Unsupported-correct rate (UCR): share of planned predictions that are right without evidence that "
        "supports them",
        height=1.9 + 0.42 * max(len(drawn), 1),
        names=names,
    )
    y = np.arange(len(drawn))[::-1]
    upper, lower = y + 0.1, y - 0.16
    axes.hlines(upper, drawn["lower"], drawn["upper"], color=INK, linewidth=2.4)
    axes.hlines(lower, drawn["conditional_lower"], drawn["conditional_upper"], color=PALE, linewidth=1.6)
    axes.plot(drawn["conditional_estimate"], lower, "|", color=PALE, markersize=7, markeredgewidth=1.6)
    dot: Style = {"marker": "o", "markersize": 6.5, "markerfacecolor": SYSTEM_COLOURS[0], "markeredgecolor": "white"}
    axes.plot(drawn["estimate"], upper, linestyle="none", **dot)
    axes.plot(drawn[f"{rival}_estimate"], lower, markersize=5.5, markeredgewidth=1.3, **RIVAL)
    axes.set_yticks(y, names)
    axes.set_ylim(-0.7, max(len(drawn), 1) - 0.3)
    axes.set_xlabel("UCR")
    axes.xaxis.set_major_formatter(percent)
    axes.tick_params(axis="y", length=0)
    fixed: Style = {"color": PALE, "linewidth": 1.6, "marker": "|", "markersize": 7}
    legend(
        figure,
        [
            Line2D([], [], color=INK, linewidth=2.4, label=f"posterior reference, {ci_prob:.0%} interval", **dot),
            Line2D([], [], label=f"reference taken as fixed, {ci_prob:.0%} bootstrap", **fixed),
            Line2D([], [], label=f"{rival.replace('_', ' ')} reference", **RIVAL),
        ],
        undefined,
    )
    return figure


def hit_caliber_coverage(table: pd.DataFrame, ci_prob: float) -> Figure:
    """Unsupported share of the right answers against the share of questions that are answered.

    Parameters
    ----------
    table
        The audit table, one row per model × method × metric.
    ci_prob
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    matplotlib.figure.Figure
        One circle per system: its area is its coverage, its cross the two intervals, its colour the model.
        Names stand in a column of their own, so that they never cover each other.
    """
    both = table[table["metric"].isin(["hit_caliber", "coverage"])]
    wide = both.pivot(index=["model", "method"], columns="metric", values=["estimate", "lower", "upper"])
    wide = wide.reindex(pd.MultiIndex.from_frame(table[["model", "method"]].drop_duplicates()))
    defined = wide["estimate"].notna().all(axis=1)
    undefined = wide.index[~defined].to_frame(index=False)
    wide = wide[defined]
    systems = wide.index.to_frame(index=False)
    names, models = system_names(systems), list(systems["model"].unique())
    figure, axes = canvas(
        "Hit caliber against coverage: how much of what is right lacks supporting evidence, and how much is answered",
        height=max(4.6, 1.6 + 0.4 * len(names)),
        names=names,
    )
    x, y = (wide["estimate", metric].to_numpy(float) for metric in ("coverage", "hit_caliber"))
    x_low, x_high = (wide[end, "coverage"].to_numpy(float) for end in ("lower", "upper"))
    y_low, y_high = (wide[end, "hit_caliber"].to_numpy(float) for end in ("lower", "upper"))
    x_limits, y_limits = limits(x, x_low, x_high), limits(y, y_low, y_high)
    slots = spread(y, y_limits, gap=1 / max(len(names) + 1, 12))
    for i, name in enumerate(names):
        colour = SYSTEM_COLOURS[models.index(systems["model"][i]) % len(SYSTEM_COLOURS)]
        axes.hlines(y[i], x_low[i], x_high[i], color=colour, linewidth=0.9, alpha=0.75)
        axes.vlines(x[i], y_low[i], y_high[i], color=colour, linewidth=0.9, alpha=0.75)
        axes.scatter(x[i], y[i], s=FULL_CIRCLE * x[i], color=colour, alpha=0.55, edgecolor=INK, zorder=3)
        leader = {"arrowstyle": "-", "color": colour, "linestyle": ":", "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(
            name,
            xy=(x[i], y[i]),
            xytext=(1.03, slots[i]),
            textcoords="axes fraction",
            fontsize=8.5,
            va="center",
            color=INK,
            annotation_clip=False,
            arrowprops=leader,
        )
    axes.set(xlim=x_limits, ylim=y_limits, ylabel="hit caliber: unsupported share of right answers")
    axes.set_xlabel("coverage: answered share of planned predictions")
    axes.xaxis.set_major_formatter(percent)
    axes.yaxis.set_major_formatter(percent)
    axes.grid(visible=True, axis="both", color=GRID, linewidth=0.8)
    circle: Style = {"linestyle": "none", "marker": "o"}
    legend(
        figure,
        [
            Line2D([], [], markersize=9, color=PALE, markeredgecolor=INK, label="circle area: coverage", **circle),
            Line2D(
                [],
                [],
                markersize=13,
                color=INK,
                label=f"cross: {ci_prob:.0%} intervals",
                **circle | {"marker": "+"},
            ),
            Line2D([], [], markersize=6, color=SYSTEM_COLOURS[0], label="colour: model", **circle),
        ],
        undefined,
    )
    return figure


def _number_on_bar(axes: Axes, x: float, y: float, share: float) -> None:
    plate = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.text(x, y, f"{share:.0%}", ha="center", va="center", fontsize=9, color=INK, bbox=plate)
