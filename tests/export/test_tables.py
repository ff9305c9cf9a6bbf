import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from evidial_bayes.data.errors import InputError
from evidial_bayes.export import tables
from evidial_bayes.inference.verdict import Check


@pytest.fixture
def fit():
    rng = np.random.default_rng(0)
    coords = {"chain": [0, 1], "draw": list(range(500)), "judge": ["ä", "b/c"]}
    posterior = xr.Dataset(
        {
            "emission": (("chain", "draw", "judge"), rng.normal(size=(2, 500, 2)).round(1)),
            "sigma": (("chain", "draw"), rng.normal(size=(2, 500))),
        },
        coords=coords,
    )
    stats = xr.Dataset({"diverging": (("chain", "draw"), np.zeros((2, 500), dtype=bool))})
    tree = xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})
    tree.attrs["panel_hash"] = "abc"
    return tree


def test_posterior_survives_the_file(fit, tmp_path):
    path = tables.write_posterior(fit, tmp_path / "posterior.nc")
    back = tables.read_posterior(path)
    xr.testing.assert_identical(back.to_dataset(), fit.to_dataset())
    for group in ("posterior", "sample_stats"):
        xr.testing.assert_equal(back[group].to_dataset(), fit[group].to_dataset())
    assert list(back["posterior"].judge.values) == ["ä", "b/c"]


def test_posterior_is_compressed(fit, tmp_path):
    path = tables.write_posterior(fit, tmp_path / "posterior.nc")
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        assert tree["posterior"]["emission"].encoding["zlib"]
        assert tree["sample_stats"]["diverging"].encoding["zlib"]


@pytest.mark.parametrize("content", [None, b"", b"not a posterior"])
def test_unreadable_posterior_is_a_sentence(tmp_path, content):
    path = tmp_path / "posterior.nc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"posterior\.nc: (there is no such file|cannot be read)"):
        tables.read_posterior(path)


def test_reference_table(reference, tmp_path):
    table = tables.reference_table(reference)
    assert list(table.columns) == [
        "cell", "p_absent", "p_partial", "p_sufficient", "map_state", "entropy", "n_votes", "resolved",
    ]  # fmt: skip
    assert list(table["cell"]) == ["c1", "c2", "c3", "c4"]
    np.testing.assert_allclose(table.loc[0, ["p_absent", "p_partial", "p_sufficient"]].astype(float), [0.8, 0.1, 0.1])
    assert list(table["map_state"]) == ["absent", "absent", "partial", "partial"]
    by_hand = -(0.8 * np.log(0.8) + 0.2 * np.log(0.1))
    np.testing.assert_allclose(table["entropy"][0], by_hand)
    path = tables.write_table(table, tmp_path / "reference.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(path), table)


def test_csv_and_parquet_hold_the_same_table(table, tmp_path):
    table.loc[0, "estimate"] = np.nan
    csv = pd.read_csv(tables.write_table(table, tmp_path / "audit.csv"))
    parquet = pd.read_parquet(tables.write_table(table, tmp_path / "audit.parquet"))
    pd.testing.assert_frame_equal(csv, parquet)
    pd.testing.assert_frame_equal(parquet, table)


def test_interrupted_table_leaves_no_file(table, tmp_path, monkeypatch):
    def half(self, file, **_):
        file.write_text("model,method\nm1,")
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", half)
    with pytest.raises(KeyboardInterrupt):
        tables.write_table(table, tmp_path / "audit.csv")
    assert not list(tmp_path.iterdir())


def check(name, status, value):
    return Check(name=name, status=status, value=value, threshold=1.01, advice="Run longer.")


def test_checks_file_is_strict_json(tmp_path):
    checks = [check("r_hat", "PASS", np.float64(1.001)), check("e_bfmi", "REVIEW", float("nan"))]
    path = tables.write_checks(checks, tmp_path / "checks.json")
    text = path.read_text(encoding="utf-8")
    assert "NaN" not in text
    read = json.loads(text)
    assert read["status"] == "REVIEW"
    assert [c["name"] for c in read["checks"]] == ["r_hat", "e_bfmi"]
    assert read["checks"][0]["value"] == 1.001
    assert read["checks"][1]["value"] is None


def test_worst_status():
    statuses = lambda *names: tables.worst([SimpleNamespace(status=name) for name in names])  # noqa: E731
    assert statuses("PASS", "FAIL", "REVIEW") == "FAIL"
    assert statuses("PASS", "REVIEW") == "REVIEW"
    assert statuses() == "PASS"
