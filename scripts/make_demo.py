"""Write the bundled demo: one simulated panel in the shape of the EviDial panel, with its truth.

Of 120 seeds this is one whose figures, judged by the true states, came out near those that the paper
publishes: UCR .207 to .540 over the twelve conditions, about 52 correct cells under direct prompting. Files
are the same, byte for byte, on every run: rows in order, six decimals, no time stamp.

    python scripts/make_demo.py [FOLDER]
"""

import gzip
import sys
from pathlib import Path

from omegaconf import OmegaConf

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.simulate import simulate_panel
from evidial_bayes.data.simulation_settings import SimulationSettings

ROOT = Path(__file__).resolve().parent.parent
SEED = 15


def demo_tables() -> dict[str, bytes]:
    """File name without `.gz` → content of the table, as UTF-8 CSV."""
    file = ROOT / "conf" / "codebook" / "evidial.yaml"
    codebook = Codebook.from_mapping(OmegaConf.to_container(OmegaConf.load(file)), str(file))
    panel = simulate_panel(SEED, SimulationSettings(), codebook)
    tables = {
        "votes": panel.votes,
        "cells": panel.cells,
        "predictions": panel.predictions,
        "truth": panel.truth,
    }
    return {
        f"{name}.csv": table.to_csv(index=False, lineterminator="\n", float_format="%.6f").encode()
        for name, table in tables.items()
    }


def main(folder: Path) -> None:
    """Write the compressed tables into a folder.

    Parameters
    ----------
    folder
        An existing folder.
    """
    for name, content in demo_tables().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "evidial_bayes" / "data" / "demo")
