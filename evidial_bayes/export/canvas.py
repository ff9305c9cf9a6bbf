"""What all figures share: size, colours, names, legend, and room for labels; nothing of it is global."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

DPI = 160
WIDTH = 8.0  # inches; two columns of a journal page
CHARACTER = 0.075  # inches that one more character of a label takes
ONE_LINE = 34  # longest system name that stays on one line; longer ones break between model and method
# Okabe & Ito (2008), from light to dark, so that states differ in grey as well.
STATE_COLOURS = ("#F0E442", "#56B4E9", "#CC79A7", "#D55E00", "#0072B2")
MANY_STATE_COLOURS = ("#F0E442", "#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#D55E00", "#0072B2", "#000000")
SYSTEM_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SPAN = 0.1  # least width of an axis: differences smaller than a few points should look small
AIR = 0.015  # how far an axis may go past 0 and 1: no tick falls there
INK, PALE, GRID = "#222222", "#9A9A9A", "#E3E3E3"
ETHICS = "States describe what the text carries, never a person's health."


def canvas(title: str, height: float, names: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a figure with one plot in it, as wide as its longest label needs."""
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    width = WIDTH + CHARACTER * max(0, longest - 20)
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(textwrap.fill(title, int(width * 11.5)), fontsize=10.5, x=0.01, ha="left", fontweight="bold")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=INK)
    return figure, axes


def legend(figure: Figure, handles: Sequence[Artist], undefined: pd.DataFrame | None = None) -> None:
    """Explain the marks under the plot, name what could not be drawn, and say what states are not."""
    note = ETHICS
    if undefined is not None and len(undefined):
        missing = ", ".join(name.replace("\n", " · ") for name in system_names(undefined))
        listed = textwrap.fill(f"Undefined, so not drawn: {missing}.", int(figure.get_figwidth() * 14))
        note = f"{listed}\n{note}"
    figure.legend(
        handles=list(handles),
        loc="outside lower center",
        ncols=min(len(handles), 5),
        frameon=False,
        fontsize=8.5,
        title=note,
        title_fontproperties={"size": 7.5, "style": "italic"},
        handlelength=1.8,
        columnspacing=1.4,
    )


def state_colours(n_states: int) -> tuple[str, ...]:
    """Colours of the states of a codebook in its order, from light to dark; they repeat from the ninth on."""
    if n_states <= len(STATE_COLOURS):
        return STATE_COLOURS[:n_states]
    return tuple(MANY_STATE_COLOURS[s % len(MANY_STATE_COLOURS)] for s in range(n_states))


def luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 for black to 1 for white (ITU-R BT.709 on linear light)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def system_names(rows: pd.DataFrame) -> list[str]:
    """Display names of the model × method systems of some rows, in order; long ones on two lines."""
    pairs = [(str(model), str(method)) for model, method in zip(rows["model"], rows["method"], strict=True)]
    return [f"{a} · {b}" if len(a) + len(b) + 3 <= ONE_LINE else f"{a}\n{b}" for a, b in pairs]


def percent(share: float, _: float = 0) -> str:
    """Tick label of a share, with as many digits as it has."""
    return f"{100 * share:.4g}%"


def limits(*values: np.ndarray) -> tuple[float, float]:
    """Axis limits that hold every finite value, a share between 0 and 1, with some air; at least ``SPAN`` apart."""
    finite = np.concatenate([v[np.isfinite(v)] for v in values])
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    lacking = max(SPAN - (high - low), 0.0) / 2
    air = 0.06 * max(high - low, SPAN)
    # What one side cannot take, since shares end at 0 and 1, the other side takes.
    low, high = low - lacking - max(high + lacking - 1, 0), high + lacking + max(lacking - low, 0)
    return max(low - air, -AIR), min(high + air, 1 + AIR)


def spread(values: np.ndarray, bounds: tuple[float, float], gap: float) -> np.ndarray:
    """Heights of labels in axes fractions: in the values' own order, at least ``gap`` apart, none above 1."""
    order = np.argsort(values, kind="stable")
    heights = (values[order] - bounds[0]) / (bounds[1] - bounds[0])
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    for i in reversed(range(len(heights))):
        ceiling = 1.0 if i == len(heights) - 1 else heights[i + 1] - gap
        heights[i] = min(heights[i], ceiling)
    placed = np.empty_like(heights)
    placed[order] = heights
    return placed
