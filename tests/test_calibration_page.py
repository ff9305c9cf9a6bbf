"""docs/calibration.md says what docs/calibration.json holds."""

import importlib.util
import json
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def report():
    if not (PROJECT / "scripts").is_dir():
        pytest.skip("scripts/ is not part of this source tree")
    spec = importlib.util.spec_from_file_location("calibration_report", PROJECT / "scripts" / "calibration_report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_figures(report, tmp_path):
    record = json.loads((PROJECT / "docs" / "calibration.json").read_text(encoding="utf-8"))
    report.write_report(record, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == (PROJECT / "docs" / "calibration.md").read_text(encoding="utf-8")


def test_the_summary_compares_with_the_best_other_method(report, tmp_path):
    losses = {report.RECOMMENDED: (0.5, 0.4), "other": (0.6, 0.4), "plurality": (0.9, 0.9)}
    rows = [
        {"panel": "p", "known": 60, "seed": seed, "method": method, "accuracy": 0.8, "ece": 0.04, "brier": 0.2,
         "log_loss": loss[seed], **({"floor": 0.03} if method == report.RECOMMENDED else {})}
        for method, loss in losses.items()
        for seed in (0, 1)
    ]  # fmt: skip
    record = {"rows": rows, "date": "2026-01-01", "machine": "m", "versions": {"jax": "1"}}
    report.write_report(record, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| p | 60 | 0.800 | 0.800 | 0.040 | 0.030 | 0.4500 | other | 0.5000 | -0.0500 ± 0.0500 |" in page
    assert f"| **{report.RECOMMENDED}** | 0.800 ± 0.000 | 0.040 ± 0.000 | 0.4500 ± 0.0500 | 0.200 ± 0.000 |" in page
