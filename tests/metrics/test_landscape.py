import jax
import numpy as np
import pandas as pd
import pytest

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import build_panel
from evidial_bayes.metrics.landscape import state_shares
from evidial_bayes.reference.base import Reference

SOFT = np.array([[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], [[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]]])


@pytest.fixture
def panel():
    states = ["absent", "partial", "sufficient"]
    book = Codebook.from_mapping(
        {
            "name": "three",
            "states": states,
            "labels": ["no", "yes"],
            "supports": {"absent": "no", "partial": None, "sufficient": "yes"},
            "sufficient": ["sufficient"],
        }
    )
    cells = pd.DataFrame(
        {"cell_id": list("abcd"), "participant_id": list("ppqr"), "source": ["north", "north", "south", "south"]}
    )
    votes = pd.DataFrame([(c, j, "absent") for c in "abc" for j in "xy"], columns=["cell_id", "judge", "vote"])
    return build_panel(votes, cells, book)


def reference(panel, conditional):
    return Reference(
        name="posterior",
        codebook=panel.codebook,
        cells=panel.coords["cell"],
        conditional=conditional,
        pattern=np.array([0, 0, 1, 1]),
        resolved=np.array([True, True, True, False]),
        n_votes=panel.n_votes,
    )


def test_state_shares_match_the_marginal_probabilities(panel):
    shares = state_shares(jax.random.key(0), reference(panel, np.repeat(SOFT, 500, 0)), panel)
    assert shares.dims == ("draw", "source", "state")
    assert list(shares["source"].values) == ["north", "south", "all sources"]
    np.testing.assert_allclose(shares.sum("state"), 1)
    # Pattern 0 is in the north, 1 in the south; four standard errors of a mean of 1,000 draws of 2 cells.
    for source, pattern in (("north", 0), ("south", 1)):
        p = SOFT[:, pattern].mean(0)
        error = 4 * np.sqrt(p * (1 - p) / (2 * 1000))
        assert (np.abs(shares.sel(source=source).mean("draw").values - p) <= error).all()
    both = shares.sel(source=["north", "south"]).mean("source")  # both sources have two cells
    np.testing.assert_allclose(shares.sel(source="all sources"), both)


def test_shares_of_a_hard_reference_are_certain(panel):
    shares = state_shares(jax.random.key(0), reference(panel, np.eye(3)[[0, 2]][None]), panel)
    assert float(shares.std("draw").max()) == 0
    np.testing.assert_array_equal(shares.sel(source="all sources").mean("draw"), [0.5, 0, 0.5])
