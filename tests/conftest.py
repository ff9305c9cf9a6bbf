"""What all tests share: double precision, a compilation cache, the shared data, small panels and one fit."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import Panel, build_panel
from evidial_bayes.data.simulate import simulate_panel
from evidial_bayes.data.simulation_settings import SimulationSettings
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.models.latent_class import LatentClass

PROJECT = Path(__file__).resolve().parents[1]

jax.config.update("jax_enable_x64", True)
# Compiled programs outlive the test run, in the project's own cache folder, which `make clean` empties.
jax.config.update("jax_compilation_cache_dir", str(PROJECT / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real panels and oracle tables that lies beside the project and is not part of it."""
    folder = PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared/data beside the project, which is not distributed with it")
    return folder


QUICK = NUTS(num_warmup=300, num_samples=300, progress=False)


@pytest.fixture(scope="session")
def panel():
    """Simulated votes of four judges on 240 cells, three states."""
    states = ["no", "unclear", "yes"]
    book = Codebook.from_mapping(
        {
            "name": "three",
            "states": states,
            "categories": states,
            "labels": ["negative", "positive"],
            "supports": {"no": "negative", "unclear": None, "yes": "positive"},
            "sufficient": ["no", "yes"],
        }
    )
    settings = SimulationSettings(n_participants=60, n_judges=4)
    simulated = simulate_panel(np.random.default_rng(2), settings, book)
    return build_panel(simulated.votes, simulated.cells, book)


@pytest.fixture(scope="session")
def model():
    return LatentClass(prevalence_formula="~ source")


@pytest.fixture(scope="session")
def fit(model, panel):
    return QUICK.fit(jax.random.key(1), model, panel)


def toy_codebook(n_states: int = 3) -> Codebook:
    states = [f"s{k}" for k in range(n_states)]
    return Codebook.from_mapping(
        {
            "name": "toy",
            "states": states,
            "categories": states,
            "labels": ["no", "yes"],
            "supports": {s: {"s0": "no", "s1": "yes"}.get(s) for s in states},
            "sufficient": ["s0", "s1"],
        }
    )


def random_panel(
    seed: int, *, n_cells: int = 14, n_judges: int = 3, n_states: int = 3, replicates: bool = False, known: bool = False
) -> Panel:
    """Draw votes without any model: a quarter is missing, and one cell has none."""
    rng = np.random.default_rng(seed)
    book = toy_codebook(n_states)
    cells = pd.DataFrame(
        {
            "cell_id": [f"u{i:02d}" for i in range(n_cells)],
            "participant_id": [f"p{i // 2}" for i in range(n_cells)],
            "source": ["a", "b"] * (n_cells // 2),
            "dimension": [f"d{i % 3}" for i in range(n_cells)],
        }
    )
    if known:
        cells["known_state"] = ["s0", "s2", *[""] * (n_cells - 2)]
        cells["known_by"] = ["constructed", "sampled", *[""] * (n_cells - 2)]
    rows = [
        {"cell_id": cell, "judge": f"j{j}", "vote": rng.choice(book.states), "replicate": str(r)}
        for cell in cells["cell_id"][:-1]
        for j in range(n_judges)
        for r in range(2 if replicates and j == 0 else 1)
        if rng.random() < 0.75
    ]
    return build_panel(pd.DataFrame(rows), cells, book, min_valid_share=0.0)


def random_params(seed: int, panel: Panel, effects: int) -> dict[str, np.ndarray]:
    """Draw parameters in the order and shapes of the posterior."""
    rng = np.random.default_rng(seed)
    judges, states = len(panel.coords["judge"]), len(panel.coords["state"])
    slope = rng.normal(size=(states, effects))
    return {
        "emission": rng.dirichlet(np.ones(states), size=(judges, states)),
        "prevalence": rng.dirichlet(np.ones(states)),
        "slope": slope - slope.mean(0),
        "sigma": np.asarray(1.1),
    }


@pytest.fixture(scope="session")
def make_panel():
    return random_panel


@pytest.fixture(scope="session")
def make_params():
    return random_params
