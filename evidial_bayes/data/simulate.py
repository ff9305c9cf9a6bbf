"""Panels with known truth, drawn from the random-effects latent class model that the package fits.

A cell's state comes from its source and dimension group, its effect b from N(0, σ²), and every vote from
softmax_y(log e_jky + b·1[y is what state k reads as]): dependence ``clarity``. NumPy alone draws, so a panel
shares no code with the model that is to recover it.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.simulated_systems import draw_predictions
from evidial_bayes.data.simulation_design import SimulationDesign, plan
from evidial_bayes.data.simulation_settings import SimulationSettings

# Replies outside the codebook; the second is a string that careless readers turn into a missing value.
INVALID_REPLIES = ("unparseable", "N/A")
# One random stream per stage: a setting of one stage leaves the draws of the others as they are.
STREAMS = ("parameters", "states", "votes", "replies", "labels", "split", "audit", "predictions")


@dataclass(frozen=True, eq=False)
class SimulatedPanel:
    """The three tables as they come through the door, and the truth behind them.

    Parameters
    ----------
    votes, cells, predictions
        Tables with the columns that the door reads. An empty reply is an empty string. ``predictions`` has no
        rows where the codebook has no labels.
    truth
        One row per cell: ``cell_id``, ``state``, ``b`` (cell effect on the log-odds scale).
    parameters
        ``emission`` [judge, state, category] at b = 0, ``prevalence`` [source, dimension_group, state] and
        ``sigma``.
    """

    votes: pd.DataFrame
    cells: pd.DataFrame
    predictions: pd.DataFrame
    truth: pd.DataFrame
    parameters: xr.Dataset


def simulate_panel(rng: np.random.Generator | int, settings: SimulationSettings, codebook: Codebook) -> SimulatedPanel:
    """Draw a panel: parameters, states, votes, native labels, split and predictions.

    Votes are missing at random given source and judge. Predictions know the native label and whether the
    state's evidence is sufficient, never the votes or b.

    Parameters
    ----------
    rng
        A generator, or a seed of at least 0. Equal seeds give equal tables.
    settings
        Sizes and probabilities.
    codebook
        States, categories, labels, dimensions and instruments.

    Returns
    -------
    SimulatedPanel
        Tables, truth and parameters.

    Raises
    ------
    InputError
        If the seed is negative or the settings do not fit the codebook.

    References
    ----------
    .. [1] EviDial (arXiv 2610.27541), section 3.3 for the model, sections 3 and 4 for the default shapes.
    """
    if isinstance(rng, int) and rng < 0:
        raise InputError(f"seed is {rng}; allowed: whole numbers from 0 up.")
    design = plan(settings, codebook)
    stream = dict(zip(STREAMS, np.random.default_rng(rng).spawn(len(STREAMS)), strict=True))
    cells = _planned_cells(design, codebook)
    parameters = _draw_parameters(stream["parameters"], settings, design, codebook)
    state = _draw_states(stream["states"], cells, parameters)
    b = stream["states"].normal(0.0, 1.0, len(cells)) * settings.sigma
    category = _draw_categories(stream["votes"], state, b, parameters, codebook)
    votes = _reply_table(stream["replies"], cells, category, settings, design, codebook)
    cells = cells.assign(**_draw_labels(stream["labels"], state, settings, design, codebook))
    held_out = stream["split"].permutation(cells["participant_id"].unique())[: design.n_held_out]
    cells["split"] = np.where(cells["participant_id"].isin(held_out), "held_out", "development")
    audited = _audited_cells(stream["audit"], cells, design)
    predictions = draw_predictions(
        stream["predictions"],
        settings.systems,
        settings.system_agreement,
        cells.iloc[audited],
        state[audited],
        codebook,
    )
    truth = pd.DataFrame({"cell_id": cells["cell_id"], "state": _names(codebook.states)[state], "b": b})
    return SimulatedPanel(votes, cells, predictions, truth, parameters)


def _names(names: tuple[str, ...]) -> np.ndarray:
    """Names as an array that codes can index, of Python strings rather than fixed-width ones."""
    return np.array(names, dtype=object)


def _choose(rng: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    """One category per row of weights [..., category]."""
    edges = probability.cumsum(-1)
    # Dividing by the last edge normalises, and keeps rounding from choosing past the end.
    return (rng.random((*probability.shape[:-1], 1)) >= edges[..., :-1] / edges[..., -1:]).sum(-1)


def _planned_cells(design: SimulationDesign, codebook: Codebook) -> pd.DataFrame:
    """Every participant × dimension that the participant's instrument assesses."""
    rows = []
    for source, number in design.participants.items():
        instrument = codebook.instruments.get(source)
        language = {} if instrument is None else {"language": instrument.language}
        for person in range(1, number + 1):
            participant = f"{source}-{person:0{len(str(number))}d}"
            rows += [
                {
                    "cell_id": f"{participant}:{dimension}",
                    "participant_id": participant,
                    "source": source,
                    **language,
                    "dimension": dimension,
                    "dimension_group": codebook.dimensions.get(dimension, dimension),
                }
                for dimension in design.dimensions[source]
            ]
    return pd.DataFrame(rows)


def _draw_parameters(
    rng: np.random.Generator, settings: SimulationSettings, design: SimulationDesign, codebook: Codebook
) -> xr.Dataset:
    """Draw the true emissions, prevalences and sigma."""
    n_judges, n_categories = settings.n_judges, len(codebook.categories)
    reads = np.eye(n_categories)[codebook.reading]
    signal = np.broadcast_to(np.asarray(settings.signal), n_judges)[:, None, None]
    emission = signal * reads + (1 - signal) * (1 - reads) / (n_categories - 1)
    if settings.emission_concentration is not None:
        emission = np.apply_along_axis(rng.dirichlet, -1, settings.emission_concentration * emission)
    noise = rng.normal(0.0, 1.0, design.group_shifts.shape) * design.group_sd
    shift = design.group_shifts + noise - noise.mean(0)
    return xr.Dataset(
        {
            "emission": (("judge", "state", "category"), emission),
            "prevalence": (("source", "dimension_group", "state"), _prevalence(shift, design)),
            "sigma": float(settings.sigma),
        },
        coords={
            "judge": _judges(n_judges),
            "state": list(codebook.states),
            "category": list(codebook.categories),
            "source": list(design.participants),
            "dimension_group": list(design.groups),
        },
    )


def _judges(n_judges: int) -> list[str]:
    return [f"judge_{j + 1}" for j in range(n_judges)]


def _prevalence(shift: np.ndarray, design: SimulationDesign) -> np.ndarray:
    """Softmax of a source's plus a group's log-odds, a source's cells having its shares on average."""
    base = design.shares.copy()
    # Shifts move the mean away from the shares; scaling the source's part by the ratio brings it back.
    for _ in range(100):
        prevalence = base[:, None, :] * np.exp(shift)
        prevalence /= prevalence.sum(-1, keepdims=True)
        mean = np.einsum("sg,sgk->sk", design.group_weights, prevalence)
        base *= np.divide(design.shares, mean, out=np.zeros_like(mean), where=mean > 0)
    return prevalence


def _draw_states(rng: np.random.Generator, cells: pd.DataFrame, parameters: xr.Dataset) -> np.ndarray:
    """State codes [cell]."""
    source = parameters.indexes["source"].get_indexer(cells["source"])
    group = parameters.indexes["dimension_group"].get_indexer(cells["dimension_group"])
    return _choose(rng, parameters["prevalence"].to_numpy()[source, group])


def _draw_categories(
    rng: np.random.Generator, state: np.ndarray, b: np.ndarray, parameters: xr.Dataset, codebook: Codebook
) -> np.ndarray:
    """Draw what every judge casts on every cell, asked or not: codes [cell, judge]."""
    lift = b[:, None] * np.eye(len(codebook.categories))[codebook.reading][state]
    tilt = np.exp(lift - lift.max(-1, keepdims=True))
    return np.stack([_choose(rng, e[state] * tilt) for e in parameters["emission"].to_numpy()], axis=1)


def _reply_table(
    rng: np.random.Generator,
    cells: pd.DataFrame,
    category: np.ndarray,
    settings: SimulationSettings,
    design: SimulationDesign,
    codebook: Codebook,
) -> pd.DataFrame:
    """Keep the replies that came back, some of them empty or outside the codebook."""
    # How many cells of a source a judge replies on is fixed, which ones is random: coverage is exact.
    order, replied = rng.random(category.shape), np.zeros(category.shape, dtype=bool)
    for source, rates in zip(design.participants, design.coverage, strict=True):
        rows = np.flatnonzero(cells["source"] == source)
        replied[rows] = order[rows].argsort(0).argsort(0) < np.round(rates * len(rows))
    outside = _names(tuple(r for r in INVALID_REPLIES if r not in codebook.categories) or ("?",))
    outside = outside[rng.integers(len(outside), size=category.shape)]
    chance = rng.random(category.shape)
    vote = np.where(chance < settings.invalid_share, outside, _names(codebook.categories)[category])
    vote = np.where(chance >= 1 - settings.empty_share, "", vote)
    cell, judge = np.nonzero(replied)
    return pd.DataFrame(
        {
            "cell_id": cells["cell_id"].to_numpy()[cell],
            "judge": _names(tuple(_judges(settings.n_judges)))[judge],
            "vote": vote[cell, judge],
            "judge_family": _names(design.judge_families)[judge],
        }
    )


def _draw_labels(
    rng: np.random.Generator,
    state: np.ndarray,
    settings: SimulationSettings,
    design: SimulationDesign,
    codebook: Codebook,
) -> dict[str, np.ndarray]:
    """Columns ``native_score`` and ``native_label``, as far as the codebook and the settings have them."""
    if design.scores is not None:
        score = _choose(rng, design.scores[state])
        return {"native_score": score, "native_label": np.where(score > 0, "positive", "negative")}
    n_labels = len(codebook.labels)
    if n_labels == 0:
        return {}
    match = settings.label_match if n_labels > 1 else 1.0
    chance = np.full((len(codebook.states), n_labels), 1 / n_labels)
    for row, name in zip(chance, codebook.states, strict=True):
        if (label := codebook.supports[name]) is not None:
            row[:] = (1 - match) / max(n_labels - 1, 1)
            row[codebook.labels.index(label)] = match
    return {"native_label": _names(codebook.labels)[_choose(rng, chance[state])]}


def _audited_cells(rng: np.random.Generator, cells: pd.DataFrame, design: SimulationDesign) -> np.ndarray:
    """Positions of the audited cells: one of every chosen participant, the remainder anywhere among them."""
    development = cells.loc[cells["split"] == "development", "participant_id"].unique()
    chosen = rng.permutation(development)[: design.audit_participants]
    shuffled = rng.permutation(np.flatnonzero(cells["participant_id"].isin(chosen)))
    later = cells["participant_id"].iloc[shuffled].duplicated().to_numpy()
    return np.sort(np.concatenate([shuffled[~later], shuffled[later]])[: design.audit_cells])
