"""The audit: predictions × reference draws × participant weights → every metric with its interval."""

import zlib
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jax import Array, lax
from numpy.typing import NDArray

from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import Panel
from evidial_bayes.data.tables import check_predictions
from evidial_bayes.inference.compilation import precision
from evidial_bayes.metrics.support import (
    ABSTAINED,
    FAILED,
    METRICS,
    count_support,
    support_metrics,
    tally_answers,
)
from evidial_bayes.reference.base import Reference, draw_states
from evidial_bayes.uncertainty.decompose import variance_shares
from evidial_bayes.uncertainty.intervals import interval, mean_of_defined, undefined_share
from evidial_bayes.uncertainty.resample import participant_weights
from evidial_bayes.uncertainty.settings import Uncertainty

__all__ = ["AuditResult", "Uncertainty", "audit", "audit_draws"]

CHUNK = 2**24  # draws × cells taken up at once: 16 MB of states, and 270 MB of weights at worst
BATCH = 16  # draws counted at once within a chunk: their cells stay in the processor's cache


@dataclass(frozen=True, eq=False)
class AuditResult:
    """What the audit found: every draw of every metric, and the table that summarises them."""

    draws: xr.Dataset  #: dims ``(draw, system)``, one variable per metric
    table: pd.DataFrame  #: one row per model × method × metric


class _Plan(NamedTuple):
    """Predictions as positions; cells are those with predictions, in the panel's order."""

    systems: pd.DataFrame  # model, method; one row per system, sorted
    cells: pd.Index
    participant: NDArray[np.int64]  # [cell], 0 … P-1 over participants with predictions
    label: NDArray[np.int64]  # [cell]
    answers: NDArray[np.float64]  # [answer, system, cell]


class _Draws(NamedTuple):
    """Metrics under the same draws of the reference, each float ``[draw, system, metric]``."""

    values: NDArray[np.float64]  # participants drawn
    other: NDArray[np.float64]  # participants drawn afresh
    observed: NDArray[np.float64]  # participants as observed


def audit_draws(
    rng_key: Array, predictions: pd.DataFrame, panel: Panel, reference: Reference, uncertainty: Uncertainty
) -> xr.Dataset:
    """Joint draws of every metric of every system: the distribution that an interval describes.

    One draw takes parameters of the reference, then one state for every cell given them, shared by all
    systems, then one weight for every participant with a prediction, shared by all systems too. Differences
    between systems may therefore be taken draw by draw.

    Parameters
    ----------
    rng_key
        JAX random key.
    predictions
        Columns ``cell_id, model, method, prediction``; every row is one planned prediction, whatever its
        ``run``.
    panel
        Native labels and participants of the cells.
    reference
        States of the cells; cells without predictions are never touched.
    uncertainty
        Sources to draw or to freeze.

    Returns
    -------
    xarray.Dataset
        Dims ``(draw, system)``; coords ``model`` and ``method`` on ``system``; one variable per metric.

    Raises
    ------
    InputError
        No predictions, a missing column, a cell outside the panel or the reference, a cell without native
        label, or a prediction that is neither a label of the codebook nor ``abstain`` or ``failed``.
    """
    plan = _plan(predictions, panel)
    return _dataset(_draw(rng_key, plan, reference, uncertainty).values, plan, panel, reference, uncertainty)


def audit(
    rng_key: Array,
    predictions: pd.DataFrame,
    panel: Panel,
    reference: Reference,
    uncertainty: Uncertainty,
    *,
    rival: Reference | None = None,
) -> AuditResult:
    """Every metric with its interval, what the interval is made of, and what simpler audits would say.

    Parameters
    ----------
    rng_key, predictions, panel, reference, uncertainty
        As in `audit_draws`, which gives the same draws for the same key.
    rival
        Another reference for the same cells, such as strict plurality, put under the same switches and
        weights.

    Returns
    -------
    AuditResult
        Columns of ``table``: ``model, method, metric``; ``n``, the planned predictions of the system;
        ``estimate``, the mean over draws of the reference for the participants as observed; ``lower, upper``;
        ``share_states``, ``share_parameters``, ``share_participants``, the parts of the variance of the
        draws; ``undefined_share``, the share of draws without a value. ``conditional_estimate, _lower,
        _upper`` take the most probable states as known and resample participants with the same weights.
        ``<rival>_estimate, _lower, _upper`` follow if asked.

    Raises
    ------
    InputError
        As in `audit_draws`.
    """
    plan = _plan(predictions, panel)
    fixed = replace(uncertainty, states=False, parameters=False)
    main = _draw(rng_key, plan, reference, uncertainty)
    conditional = _draw(rng_key, plan, reference, fixed)
    shares = variance_shares(
        main.values,
        main.other,
        _draw(rng_key, plan, reference, uncertainty, states="other states").other,
        conditional.values,
        conditional.other,
        parameters=uncertainty.parameters and len(reference.conditional) > 1,
    )
    columns = {
        **_summary("", main, uncertainty),
        **{f"share_{source}": share for source, share in shares._asdict().items()},
        "undefined_share": undefined_share(main.values),
        **_summary("conditional_", conditional, uncertainty),
    }
    if rival is not None:
        columns |= _summary(f"{rival.name}_", _draw(rng_key, plan, rival, uncertainty), uncertainty)
    return AuditResult(draws=_dataset(main.values, plan, panel, reference, uncertainty), table=_table(columns, plan))


def _plan(predictions: pd.DataFrame, panel: Panel) -> _Plan:
    columns = [c for c in ("participant_id", "native_label") if c in panel.cells]
    door = panel.cells[columns].rename_axis("cell_id").reset_index()
    predictions = check_predictions(predictions, panel.codebook, door)
    codes = {label: code for code, label in enumerate(panel.codebook.labels)}
    codes |= {"abstain": ABSTAINED, "failed": FAILED}
    planned = panel.coords["cell"].get_indexer(predictions["cell_id"])
    cells, cell = np.unique(planned, return_inverse=True)
    label = panel.cells["native_label"].iloc[cells].map(codes).to_numpy(np.int64)
    by_system = predictions.groupby(["model", "method"], sort=True)
    systems = by_system.size().rename("n").reset_index()
    return _Plan(
        systems=systems,
        cells=panel.coords["cell"][cells],
        participant=np.unique(panel.participant[cells], return_inverse=True)[1],
        label=label,
        answers=tally_answers(
            by_system.ngroup().to_numpy(),
            cell,
            predictions["prediction"].map(codes).to_numpy(np.int64),
            label,
            len(systems),
        ),
    )


def _draw(
    rng_key: Array, plan: _Plan, reference: Reference, uncertainty: Uncertainty, *, states: str = "states"
) -> _Draws:
    """Draw states from the stream of the given name, and participants always from the same two streams."""
    cells = reference.cells.get_indexer(plan.cells)
    if (cells < 0).any():
        lost = plan.cells[cells < 0]
        raise InputError(
            f"predictions: {len(lost)} of {len(cells)} cells are not in the reference '{reference.name}', "
            f"the first is '{lost[0]}'."
        )
    parameters = np.arange(uncertainty.draws) * len(reference.conditional) // uncertainty.draws
    rows = max(1, CHUNK // len(cells))
    chunks = []
    with precision("float64"):
        for start in range(0, uncertainty.draws, rows):
            draws = parameters[start : start + rows]
            state = draw_states(
                _stream(rng_key, states, start),
                reference,
                cells,
                draws,
                states=uncertainty.states,
                parameters=uncertainty.parameters,
            )
            weights = [
                _weights(_stream(rng_key, name, start), len(draws), plan, uncertainty)
                for name in ("participants", "other participants")
            ]
            chunks.append(
                _evaluate(
                    state,
                    *weights,
                    plan.participant,
                    plan.answers,
                    plan.label,
                    reference.resolved[cells],
                    reference.codebook.support,
                )
            )
    return _Draws(*np.moveaxis(np.concatenate(chunks), 1, 0))


def _stream(rng_key: Array, name: str, start: int) -> Array:
    """Key of a named stream of random numbers, for the draws from ``start`` on."""
    return jax.random.fold_in(jax.random.fold_in(rng_key, zlib.crc32(name.encode())), start)


def _weights(rng_key: Array, n_draws: int, plan: _Plan, uncertainty: Uncertainty) -> Array:
    n_participants = int(plan.participant.max()) + 1
    if uncertainty.participants:
        return participant_weights(rng_key, n_draws, n_participants, uncertainty.weights)
    return jnp.ones((n_draws, n_participants))


@jax.jit
def _evaluate(
    state: Array,
    weight: Array,
    other_weight: Array,
    participant: Array,
    answers: Array,
    label: Array,
    resolved: Array,
    support: Array,
) -> Array:
    """Metrics ``[draw, 3, system, metric]`` of states ``[draw, cell]`` under weights ``[draw, participant]``.

    The three are the weights, the other weights, and ones: participants as observed.
    """

    def one(row: tuple[Array, Array, Array]) -> Array:
        state, *weights = row

        def metrics(weight: Array) -> Array:
            counts = count_support(state, weight[participant], answers, label, resolved, support)
            by_name = support_metrics(counts)
            return jnp.stack([by_name[name] for name in METRICS], axis=-1)

        return jax.vmap(metrics)(jnp.stack([*weights, jnp.ones_like(weights[0])]))

    return lax.map(one, (state, weight, other_weight), batch_size=BATCH)


def _summary(prefix: str, draws: _Draws, uncertainty: Uncertainty) -> dict[str, NDArray[np.float64]]:
    lower, upper = interval(draws.values, uncertainty.interval, uncertainty.ci_prob)
    estimate = mean_of_defined(draws.observed)
    return {f"{prefix}estimate": estimate, f"{prefix}lower": lower, f"{prefix}upper": upper}


def _table(columns: dict[str, NDArray[np.float64]], plan: _Plan) -> pd.DataFrame:
    """Spread columns ``[system, metric]`` over rows."""
    rows = plan.systems.loc[plan.systems.index.repeat(len(METRICS))].reset_index(drop=True)
    rows.insert(2, "metric", np.tile(METRICS, len(plan.systems)))
    return rows.assign(**{name: column.ravel() for name, column in columns.items()})


def _dataset(
    values: NDArray[np.float64], plan: _Plan, panel: Panel, reference: Reference, uncertainty: Uncertainty
) -> xr.Dataset:
    settings = {k: int(v) if isinstance(v, bool) else v for k, v in asdict(uncertainty).items()}
    return xr.Dataset(
        {name: (("draw", "system"), values[..., m]) for m, name in enumerate(METRICS)},
        coords={
            "draw": np.arange(len(values)),
            "model": ("system", plan.systems["model"].to_numpy(object)),
            "method": ("system", plan.systems["method"].to_numpy(object)),
        },
        attrs={"reference": reference.name, "panel_hash": panel.hash, **settings},
    )
