"""A small panel, a soft reference, an audit table and share draws, made by hand."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import build_panel
from evidial_bayes.reference.base import Reference

STATES = ("absent", "partial", "sufficient")


@pytest.fixture
def codebook():
    return Codebook.from_mapping(
        {
            "name": "three",
            "states": list(STATES),
            "labels": ["no", "yes"],
            "supports": {"absent": "no", "partial": None, "sufficient": "yes"},
            "sufficient": ["sufficient"],
        }
    )


@pytest.fixture
def panel(codebook):
    cells = pd.DataFrame(
        {
            "cell_id": ["c1", "c2", "c3", "c4"],
            "participant_id": ["p1", "p1", "p2", "p3"],
            "source": ["north", "north", "south", "south"],
        }
    )
    rows = [(c, j, "absent") for c in ("c1", "c2", "c3") for j in ("[bold]ann", "ben")]
    rows += [("c1", "cy", "?"), ("c2", "cy", ""), ("c3", "cy", "sufficient")]
    votes = pd.DataFrame(rows, columns=["cell_id", "judge", "vote"])
    return build_panel(votes, cells, codebook)


@pytest.fixture
def reference(codebook, panel):
    conditional = np.array(
        [
            [[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]],
            [[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]],
        ]
    )
    return Reference(
        name="posterior",
        codebook=codebook,
        cells=panel.coords["cell"],
        conditional=conditional,
        pattern=np.array([0, 0, 1, 1]),
        resolved=np.array([True, True, True, False]),
        n_votes=panel.n_votes,
    )


@pytest.fixture
def shares():
    rng = np.random.default_rng(1)
    draws = np.stack([rng.dirichlet([5, 3, 2], 200), rng.dirichlet([1, 1, 8], 200)], axis=1)
    return xr.DataArray(
        draws,
        dims=("draw", "source", "state"),
        coords={"source": ["north", "south"], "state": list(STATES)},
    )


def audit_row(model, method, metric, estimate, width=0.1):
    lower, upper = estimate - width, min(estimate + width, 1)
    row = {"model": model, "method": method, "metric": metric, "n": 87}
    row |= {"estimate": estimate, "lower": lower, "upper": upper}
    row |= {"share_states": 0.2, "share_parameters": 0.1, "share_participants": 0.7, "undefined_share": 0.0}
    row |= {"conditional_estimate": estimate, "conditional_lower": lower, "conditional_upper": upper}
    return row | {"plurality_estimate": estimate, "plurality_lower": lower, "plurality_upper": upper}


def audit_rows(systems):
    rng = np.random.default_rng(2)
    rows = []
    for model, method in systems:
        caliber, coverage = rng.uniform(0.7, 0.95), rng.uniform(0.5, 1)
        values = {
            "ucr": caliber * coverage * 0.6,
            "hit_caliber": caliber,
            "coverage": coverage,
            "accuracy": 0.6,
        }
        rows += [audit_row(model, method, metric, value) for metric, value in values.items()]
    return pd.DataFrame(rows)


@pytest.fixture
def table():
    return audit_rows([("m1", "direct"), ("m1", "careful"), ("[red]m2", "direct")])


@pytest.fixture
def crowded_table():
    """Twelve systems with long names, one of them undefined."""
    models = (
        "anthropic/claude-opus-large-20260101",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
        "Qwen/Qwen3-235B-A22B-Thinking",
    )
    methods = ("direct prompting", "chain of thought with self-consistency", "evidence first", "retrieval")
    table = audit_rows([(model, method) for model in models for method in methods])
    undefined = (table["model"] == models[0]) & (table["method"] == methods[0])
    undefined &= table["metric"].isin(["ucr", "hit_caliber"])
    table.loc[undefined, ["estimate", "lower", "upper"]] = np.nan
    return table
