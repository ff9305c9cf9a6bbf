from pathlib import Path

import numpy as np
import pytest

from evidial_bayes.export import console
from evidial_bayes.inference.verdict import Check


def printed(capsys, *parts):
    console.report(*parts)
    return capsys.readouterr().out


def test_panel_summary_names_the_excluded(panel, capsys):
    text = printed(capsys, console.panel_summary(panel))
    assert "4, 1 of them without a vote" in text
    assert "7 valid, 1 outside the codebook, 1 empty" in text
    assert "2: [bold]ann, ben" in text, "names are printed as they are, not read as markup"
    assert "cy (33% of its votes valid)" in text


def test_checks_give_advice_only_where_it_is_needed(capsys):
    checks = [
        Check(name="r_hat", status="PASS", value=1.003, threshold=1.01, advice="Run longer chains."),
        Check(name="ess_bulk", status="FAIL", value=12.0, threshold=400.0, advice="Raise num_samples."),
    ]
    text = printed(capsys, console.checks_table(checks))
    assert "Run longer chains." not in text
    assert "Raise num_samples." in text
    assert "1.003" in text
    assert "FAIL" in text


def test_shares_have_intervals(shares, capsys):
    text = printed(capsys, console.shares_table(shares, 0.9))
    draws = shares.sel(source="north", state="absent").values
    low, high = np.quantile(draws, [0.05, 0.95])
    assert f"{draws.mean():.1%} [{low:.1%}, {high:.1%}]" in text
    assert "90% interval" in text


def test_audit_has_one_row_per_system(table, capsys):
    text = printed(capsys, console.audit_table(table, 0.95))
    ucr = table.loc[0]
    assert f"{ucr['estimate']:.3f} [{ucr['lower']:.3f}, {ucr['upper']:.3f}]" in text
    assert "participants 70%" in text
    assert "[red]m2" in text
    assert text.count("direct") == 2


def test_undefined_is_named(table, capsys):
    first = (table["model"] == "m1") & (table["method"] == "direct")
    table.loc[first & (table["metric"] == "hit_caliber"), ["estimate", "lower", "upper"]] = np.nan
    shares = ["share_states", "share_parameters", "share_participants"]
    table.loc[first & (table["metric"] == "ucr"), shares] = np.nan
    text = printed(capsys, console.audit_table(table, 0.95))
    line = next(line for line in text.splitlines() if "direct" in line)
    assert "undefined" in line
    assert "–" in line
    assert "nan" not in text


def test_output_without_terminal_is_plain_and_whole(crowded_table, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, console.audit_table(crowded_table, 0.95), console.ETHICS)
    assert "\x1b" not in text
    assert "…" not in text
    for system in crowded_table[["model", "method"]].drop_duplicates().itertuples():
        assert any(system.model in line and system.method in line for line in text.splitlines())
    assert console.ETHICS in text.splitlines()


@pytest.mark.parametrize("width", ["60", "200"])
def test_terminal_folds_and_cuts_nothing(crowded_table, capsys, monkeypatch, width):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", width)
    text = printed(capsys, console.audit_table(crowded_table, 0.95))
    assert "…" not in text
    assert "\x1b" in text


def test_files_are_listed(tmp_path):
    text = console.files_text([tmp_path / "audit.csv", tmp_path / "figures" / "ucr.png"], tmp_path)
    assert text.splitlines() == [f"Results in {tmp_path}", "  audit.csv", f"  {Path('figures/ucr.png')}"]
