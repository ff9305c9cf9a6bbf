"""The systems that are audited on a simulated panel, and what they predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.simulation_checks import check_keys, check_share, refusal


@dataclass(frozen=True)
class System:
    """One audited model × method condition: how often it answers, and answers right, by the cell's evidence.

    Parameters
    ----------
    model, method
        Names in the table of predictions.
    answered_lacking, answered_sufficient
        Probability that it answers (does not abstain) where the evidence is insufficient, and where it is
        sufficient.
    correct_lacking, correct_sufficient
        Probability that an answer equals the native label, in the same two kinds of cells.
    failed
        Probability that nothing usable comes back, whatever the evidence.

    Raises
    ------
    InputError
        If a probability is outside 0 to 1.
    """

    model: str
    method: str
    answered_lacking: float
    answered_sufficient: float
    correct_lacking: float
    correct_sufficient: float
    failed: float = 0.01

    def __post_init__(self) -> None:
        """Check every probability."""
        for field in fields(self)[2:]:
            check_share(f"systems.{self.model}.{self.method}.{field.name}", getattr(self, field.name))

    @classmethod
    def from_mapping(cls, mapping: object, file: str = "data") -> "System":
        """Build a system from plain values, as YAML gives them.

        Parameters
        ----------
        mapping
            Field → value; ``failed`` may be left out.
        file
            Where the mapping came from, for messages.

        Returns
        -------
        System

        Raises
        ------
        InputError
            If it is no mapping, a field is missing or unknown, or a value is no probability.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(mapping, Mapping) or not set(names[:-1]) <= set(mapping):
            raise refusal("systems", mapping, f"systems that give each of {', '.join(names[:-1])}")
        check_keys(f"{file}.systems", mapping, names)
        return cls(**mapping)


# Direct prompting (B0) to the most cautious method (M): abstention grows where evidence is lacking. Model c
# under B2 answers few sufficient cells rightly, which gives the panel its highest hit caliber.
PAPER_SYSTEMS = (
    System("model_a", "B0", 0.78, 0.90, 0.71, 0.90),
    System("model_b", "B0", 0.94, 0.97, 0.58, 0.88),
    System("model_c", "B0", 0.96, 0.97, 0.57, 0.88),
    System("model_a", "B1", 0.92, 0.95, 0.65, 0.90),
    System("model_b", "B1", 0.90, 0.95, 0.58, 0.85),
    System("model_c", "B1", 0.90, 0.95, 0.55, 0.80),
    System("model_a", "B2", 0.78, 0.90, 0.64, 0.85),
    System("model_b", "B2", 0.80, 0.85, 0.60, 0.70),
    System("model_c", "B2", 0.75, 0.60, 0.58, 0.25),
    System("model_a", "M", 0.52, 0.85, 0.66, 0.85),
    System("model_b", "M", 0.42, 0.85, 0.65, 0.85),
    System("model_c", "M", 0.36, 0.85, 0.66, 0.85),
)


def draw_predictions(
    rng: np.random.Generator,
    systems: Sequence[System],
    agreement: float,
    cells: pd.DataFrame,
    state: np.ndarray,
    codebook: Codebook,
) -> pd.DataFrame:
    """Draw what every system predicts on every audited cell.

    Parameters
    ----------
    rng
        Source of randomness.
    systems
        The audited conditions.
    agreement
        Probability that a system decides a cell by the chance that all systems share.
    cells
        The audited cells, with ``cell_id`` and ``native_label``.
    state
        Codes of their true states: int [cell].
    codebook
        Labels, and which states are sufficient.

    Returns
    -------
    pandas.DataFrame
        ``cell_id, model, method, prediction``: a label, ``abstain`` or ``failed``. No rows where the codebook
        has no labels.
    """
    if not codebook.labels:
        return pd.DataFrame(columns=["cell_id", "model", "method", "prediction"], dtype=str)
    n, n_labels = len(cells), len(codebook.labels)
    labels = np.array(codebook.labels, dtype=object)
    native = pd.Index(codebook.labels).get_indexer(cells["native_label"])
    sufficient = np.isin(np.array(codebook.states)[state], codebook.sufficient)
    shared = rng.random((2, n))
    tables = []
    for system in systems:
        # A mixture of a shared and an own uniform is uniform: every system keeps its rates.
        answer, right = np.where(rng.random((2, n)) < agreement, shared, rng.random((2, n)))
        answered = answer < np.where(sufficient, system.answered_sufficient, system.answered_lacking)
        correct = right < np.where(sufficient, system.correct_sufficient, system.correct_lacking)
        wrong = (native + rng.integers(1, max(n_labels, 2), n)) % n_labels
        prediction = np.where(answered, labels[np.where(correct, native, wrong)], "abstain")
        prediction = np.where(rng.random(n) < system.failed, "failed", prediction)
        columns = {"model": system.model, "method": system.method, "prediction": prediction}
        tables.append(pd.DataFrame({"cell_id": cells["cell_id"].to_numpy(), **columns}))
    return pd.concat(tables, ignore_index=True)
