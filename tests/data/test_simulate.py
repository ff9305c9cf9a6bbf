"""The simulator against its own declared truth, by integration over b that shares no code with it."""

import gzip
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.demo import demo_path, table_path
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.data.simulate import SimulatedPanel, simulate_panel
from evidial_bayes.data.simulated_systems import System
from evidial_bayes.data.simulation_design import plan
from evidial_bayes.data.simulation_settings import SimulationSettings
from evidial_bayes.data.tables import check_predictions, read_cells, read_predictions, read_votes

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("votes", "cells", "predictions", "truth")


def load_codebook(name: str) -> Codebook:
    path = ROOT / "conf" / "codebook" / f"{name}.yaml"
    return Codebook.from_mapping(OmegaConf.to_container(OmegaConf.load(path)), path.name)


@pytest.fixture(scope="module")
def evidial() -> Codebook:
    return load_codebook("evidial")


@pytest.fixture(scope="module")
def fact_check() -> Codebook:
    return load_codebook("fact_check")


@pytest.fixture(scope="module")
def paper(evidial: Codebook) -> SimulatedPanel:
    return simulate_panel(20261, SimulationSettings(), evidial)


@pytest.fixture(scope="module")
def large(evidial: Codebook) -> SimulatedPanel:
    """40,000 cells, each read by three judges, for frequencies with small errors."""
    settings = SimulationSettings(n_participants=5_000, coverage=1.0, invalid_share=0.0, empty_share=0.0, sigma=1.3)
    return simulate_panel(7, settings, evidial)


def with_truth(panel: SimulatedPanel, codebook: Codebook) -> pd.DataFrame:
    """Predictions beside native labels and true states, with the outcomes that UCR is defined by."""
    cells = panel.cells.merge(panel.truth, on="cell_id")
    table = panel.predictions.merge(cells[["cell_id", "native_label", "state"]], on="cell_id")
    table["correct"] = table["prediction"] == table["native_label"]
    supported = table["state"].map(codebook.supports) == table["native_label"]
    table["unsupported"] = table["correct"] & ~supported
    table["answered"] = ~table["prediction"].isin(["abstain", "failed"])
    return table


# ---------------------------------------------------------------- shape of the paper


def test_paper_shape(paper):
    cells = paper.cells
    assert len(cells) == 2_744
    assert cells["cell_id"].is_unique
    people = cells.drop_duplicates("participant_id")
    assert people["source"].value_counts().to_dict() == {"EDAIC": 271, "PDCH": 72}
    assert people["split"].value_counts().to_dict() == {"development": 182, "held_out": 161}
    assert (cells.groupby("participant_id")["split"].nunique() == 1).all()
    assert (cells.groupby("participant_id").size() == 8).all()
    dimensions = cells.groupby("source")["dimension"].unique().map(set)
    assert set.union(*dimensions) - dimensions["PDCH"] == {"concentration"}
    assert set.union(*dimensions) - dimensions["EDAIC"] == {"suicidal_ideation"}
    assert cells.groupby("source")["language"].unique().map(list).to_dict() == {
        "EDAIC": ["en"],
        "PDCH": ["zh"],
    }
    assert list(paper.truth["cell_id"]) == list(cells["cell_id"])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_votes_are_about_5240_and_uneven_by_source_and_judge(evidial, seed):
    panel = simulate_panel(seed, SimulationSettings(), evidial)
    votes = panel.votes
    valid = votes["vote"].isin(evidial.categories)
    # Replies are fixed in number; the valid ones are binomial with share .98, so four standard errors are 41.
    assert len(votes) == 5_356
    assert abs(valid.sum() - 0.98 * 5_356) < 4 * np.sqrt(5_356 * 0.98 * 0.02)
    assert abs(valid.sum() - 5_240) < 60
    assert (votes["vote"] == "").sum() > 10
    assert (~valid & (votes["vote"] != "")).sum() > 10
    assert votes["judge"].nunique() == votes["judge_family"].nunique() == 3
    assert not votes.duplicated(["cell_id", "judge"]).any()
    source = votes["cell_id"].map(panel.cells.set_index("cell_id")["source"])
    replies = votes.groupby([source, "judge"]).size().unstack()
    assert replies.loc["PDCH"].tolist() == [575, 559, 536]
    assert replies.loc["EDAIC"].tolist() == [2164, 1054, 468]


def test_audit_covers_87_development_cells_of_76_participants_by_12_conditions(paper):
    predictions = paper.predictions
    audited = paper.cells[paper.cells["cell_id"].isin(predictions["cell_id"])]
    assert len(audited) == 87
    assert audited["participant_id"].nunique() == 76
    assert set(audited["split"]) == {"development"}
    systems = predictions.groupby(["model", "method"]).size()
    assert systems.tolist() == [87] * 12
    assert set(predictions["prediction"]) == {"positive", "negative", "abstain", "failed"}


def test_shares_and_scores_are_the_papers(evidial):
    settings = SimulationSettings(n_participants=20 * 343)
    panel = simulate_panel(11, settings, evidial)
    table = panel.cells.merge(panel.truth, on="cell_id")
    share = table["state"].value_counts(normalize=True)
    # Four binomial standard errors at 54,880 cells are below .009.
    expected = {"absent": 0.428, "partial": 0.395, "sufficient_positive": 0.153}
    assert share[list(expected)].to_dict() == pytest.approx(expected, abs=0.009)
    assert 0.01 < share["conflicting"] < 0.02
    assert 0.005 < share["sufficient_negative"] < 0.02
    sufficient = table["state"].isin(evidial.sufficient).groupby(table["source"]).mean()
    assert sufficient.to_dict() == pytest.approx({"PDCH": 0.715, "EDAIC": 0.018}, abs=0.018)
    # Scores have a standard deviation of about one and at least 8,000 cells per state here.
    score = table.groupby("state")["native_score"].mean()
    assert score[["absent", "partial", "sufficient_positive"]].tolist() == pytest.approx([0.77, 0.91, 1.65], abs=0.05)
    assert ((table["native_score"] > 0) == (table["native_label"] == "positive")).all()


def test_ucr_by_truth_falls_in_the_papers_range(evidial):
    # Means over panels: one panel has 87 cells, so a binomial error of .05 that 40 panels bring below .01.
    tables = []
    for seed in range(40):
        table = with_truth(simulate_panel(seed, SimulationSettings(), evidial), evidial)
        sums = table.groupby(["method", "model"])[["correct", "unsupported", "answered"]].sum()
        tables.append(sums)
    mean = sum(tables) / len(tables)
    ucr = mean["unsupported"] / 87
    caliber = mean["unsupported"] / mean["correct"]
    coverage = mean["answered"].groupby("method").mean() / 87
    assert 0.18 < ucr.min() < 0.24
    assert 0.49 < ucr.max() < 0.56
    assert 0.66 < caliber.min() < 0.78
    assert 0.89 < caliber.max() < 0.98
    assert mean.loc["B0", "correct"].tolist() == pytest.approx([52] * 3, abs=2.5)
    assert 0.75 < (mean.loc["B0", "answered"] / 87).min() < 0.82
    assert coverage["B0"] > coverage["B2"] > coverage["M"]


# ---------------------------------------------------------------- the generative model


def test_vote_frequencies_given_the_state_match_quadrature(large, evidial):
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    emission = large.parameters["emission"].to_numpy()
    sigma = float(large.parameters["sigma"])
    votes = large.votes.pivot(index="cell_id", columns="judge", values="vote").reindex(large.truth["cell_id"])
    codes = votes.apply(lambda column: pd.Index(evidial.categories).get_indexer(column)).to_numpy()
    state = pd.Index(evidial.states).get_indexer(large.truth["state"])
    for k, name in enumerate(evidial.states):
        # P(y | j, k, b) at every node: the category that the state reads as gains b on the log scale.
        given = np.zeros((len(nodes), 3, 5))
        for g, b in enumerate(sigma * nodes):
            for j in range(3):
                logits = np.log(emission[j, k])
                logits[evidial.categories.index(evidial.reads[name])] += b
                given[g, j] = np.exp(logits) / np.exp(logits).sum()
        seen = codes[state == k]
        n = len(seen)
        for j in range(3):
            single = np.einsum("g,gy->y", weights, given[:, j])
            observed = np.bincount(seen[:, j], minlength=5) / n
            assert np.all(np.abs(observed - single) <= 4 * np.sqrt(single * (1 - single) / n))
        # Pairs of judges depend on each other only through b: their joint frequencies tell σ apart from 0.
        for j, m in ((0, 1), (0, 2), (1, 2)):
            joint = np.einsum("g,gy,gz->yz", weights, given[:, j], given[:, m])
            observed = np.zeros((5, 5))
            np.add.at(observed, (seen[:, j], seen[:, m]), 1 / n)
            # A cell expected below one vote is judged with the error of one.
            error = np.sqrt(np.maximum(joint * (1 - joint), 1 / n) / n)
            assert np.all(np.abs(observed - joint) <= 4 * error)
            if name == "absent":
                # The test can tell: this many cells rule out judges that are independent given the state.
                r = evidial.reading[k]
                product = observed[r].sum() * observed[:, r].sum()
                assert observed[r, r] - product > 4 * error[r, r]


def test_votes_of_clear_cells_are_right_and_of_unclear_ones_wrong(large):
    # e·exp(b) / (e·exp(b) + 1 − e), with every cell's own b from the truth table.
    votes = large.votes.merge(large.truth, on="cell_id")
    emission = large.parameters["emission"].to_numpy()
    judge = large.parameters.indexes["judge"].get_indexer(votes["judge"])
    state = large.parameters.indexes["state"].get_indexer(votes["state"])
    b = votes["b"].to_numpy()
    odds = np.exp(b) * emission[judge, state, state] / (1 - emission[judge, state, state])
    expected = odds / (1 + odds)
    right = (votes["vote"] == votes["state"]).to_numpy()
    for low, high in ((-9, -1.5), (-1.5, 0), (0, 1.5), (1.5, 9)):
        rows = (b >= low) & (b < high)
        error = np.sqrt((expected * (1 - expected))[rows].sum()) / rows.sum()
        assert abs(right[rows].mean() - expected[rows].mean()) < 4 * error


def test_without_sigma_judges_are_independent_given_the_state(evidial):
    settings = SimulationSettings(
        n_participants=2_000,
        coverage=1.0,
        invalid_share=0,
        empty_share=0,
        sigma=0,
        emission_concentration=None,
    )
    panel = simulate_panel(3, settings, evidial)
    assert (panel.truth["b"] == 0).all()
    expected = np.full((3, 5, 5), 0.0625)
    expected[:, np.arange(5), np.arange(5)] = 0.75
    np.testing.assert_allclose(panel.parameters["emission"], expected)
    votes = panel.votes.pivot(index="cell_id", columns="judge", values="vote").reindex(panel.truth["cell_id"])
    right = votes.eq(panel.truth["state"].to_numpy(), axis=0).to_numpy()
    n = len(right)
    assert abs(right.mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / (3 * n))
    both = (right[:, 0] & right[:, 1]).mean()
    assert abs(both - 0.5625) < 4 * np.sqrt(0.5625 * 0.4375 / n)


def test_cell_effects_have_their_standard_deviation(large):
    b = large.truth["b"]
    assert abs(b.std() - 1.3) < 4 * 1.3 / np.sqrt(2 * len(b))
    assert abs(b.mean()) < 4 * 1.3 / np.sqrt(len(b))


def test_states_follow_the_prevalence_of_their_stratum(large):
    table = large.cells.merge(large.truth, on="cell_id")
    prevalence = large.parameters["prevalence"]
    for (source, group), cells in table.groupby(["source", "dimension_group"]):
        expected = prevalence.sel(source=source, dimension_group=group).to_series()
        observed = cells["state"].value_counts(normalize=True).reindex(expected.index, fill_value=0)
        error = np.sqrt(expected * (1 - expected) / len(cells))
        assert ((observed - expected).abs() <= 4 * error).all(), (source, group)


def test_prevalence_is_additive_on_the_log_odds_and_keeps_the_sources_shares(large, evidial):
    prevalence = large.parameters["prevalence"].to_numpy()
    odds = np.log(prevalence / prevalence[..., :1])
    interaction = odds - odds[:, :1] - odds[:1] + odds[:1, :1]
    np.testing.assert_allclose(interaction, 0, atol=1e-10)
    design = plan(SimulationSettings(), evidial)
    dimensions = large.cells.groupby("source")["dimension_group"].value_counts(normalize=True)
    for s, source in enumerate(design.participants):
        weight = dimensions[source].reindex(large.parameters.indexes["dimension_group"]).to_numpy()
        np.testing.assert_allclose(weight @ prevalence[s], design.shares[s], atol=1e-8)


def test_given_group_effects_shift_the_log_odds(evidial):
    settings = SimulationSettings(group_effects={"somatic": {"partial": 0.7}})
    prevalence = simulate_panel(0, settings, evidial).parameters["prevalence"]
    odds = np.log(prevalence.sel(state="partial") / prevalence.sel(state="absent"))
    shift = odds.sel(dimension_group="somatic") - odds.sel(dimension_group="mood")
    np.testing.assert_allclose(shift, 0.7, atol=1e-10)


# ---------------------------------------------------------------- seeds


def test_equal_seeds_give_equal_tables(evidial):
    settings = SimulationSettings(n_participants=40)
    first, again = (simulate_panel(5, settings, evidial) for _ in range(2))
    generator = simulate_panel(np.random.default_rng(5), settings, evidial)
    other = simulate_panel(6, settings, evidial)
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(first, name), getattr(again, name))
        pd.testing.assert_frame_equal(getattr(first, name), getattr(generator, name))
        assert not getattr(first, name).equals(getattr(other, name)), name
    assert first.parameters.identical(again.parameters)


def test_a_setting_of_one_stage_leaves_the_others_as_they_are(paper, evidial):
    panel = simulate_panel(20261, SimulationSettings(coverage=0.5, system_agreement=0.0), evidial)
    pd.testing.assert_frame_equal(panel.truth, paper.truth)
    pd.testing.assert_frame_equal(panel.cells, paper.cells)
    both = panel.votes.merge(paper.votes, on=["cell_id", "judge"])
    assert (both["vote_x"] == both["vote_y"]).all()
    assert not panel.predictions.equals(paper.predictions)


# ---------------------------------------------------------------- other codebooks and sizes


def test_fact_check_with_five_judges_and_full_coverage(fact_check):
    settings = SimulationSettings(
        n_participants=100,
        n_judges=5,
        judge_families=["a", "a", "b", "b", "c"],
        coverage=1.0,
        invalid_share=0.0,
        empty_share=0.0,
        signal=[0.9, 0.8, 0.7, 0.6, 0.5],
        systems=[System("m", "baseline", 1.0, 1.0, 1.0, 1.0, failed=0.0)],
    )
    panel = simulate_panel(1, settings, fact_check)
    assert len(panel.cells) == 100 * 8
    assert panel.cells.groupby("source")["participant_id"].nunique().tolist() == [50, 50]
    assert len(panel.votes) == 5 * len(panel.cells)
    assert panel.votes["vote"].isin(fact_check.categories).all()
    assert panel.votes.drop_duplicates("judge")["judge_family"].tolist() == ["a", "a", "b", "b", "c"]
    assert set(panel.cells["native_label"]) == set(fact_check.labels)
    assert "native_score" not in panel.cells
    assert not {"language", "PDCH"} & set(panel.cells.columns)
    assert with_truth(panel, fact_check)["correct"].all()
    table = panel.cells.merge(panel.truth, on="cell_id")
    table = table[table["state"] != "conflicting"]
    match = (table["state"].map(fact_check.supports) == table["native_label"]).mean()
    assert abs(match - 0.75) < 4 * np.sqrt(0.75 * 0.25 / len(table))
    state = panel.truth["state"].value_counts(normalize=True)
    assert (abs(state - 0.2) < 4 * np.sqrt(0.2 * 0.8 / len(panel.truth))).all()
    build_panel(panel.votes, panel.cells, fact_check)


def test_wrong_answers_are_spread_over_the_other_labels(fact_check):
    system = System("m", "x", 1.0, 1.0, 0.0, 0.0, failed=0.0)
    settings = SimulationSettings(n_participants=343 * 20, systems=[system])
    table = with_truth(simulate_panel(2, settings, fact_check), fact_check)
    assert not table["correct"].any()
    for _, rows in table.groupby("native_label"):
        share = rows["prediction"].value_counts(normalize=True)
        assert share.tolist() == pytest.approx([0.5, 0.5], abs=4 * np.sqrt(0.25 / len(rows)))


def test_codebook_whose_states_share_a_category_and_has_no_labels():
    codebook = Codebook.from_mapping(
        {
            "name": "quality",
            "states": ["good", "good_by_chance", "bad"],
            "categories": ["yes", "no"],
            "reads": {"good": "yes", "good_by_chance": "yes", "bad": "no"},
        }
    )
    settings = SimulationSettings(n_participants=30, emission_concentration=None, dimensions=["d"])
    panel = simulate_panel(4, settings, codebook)
    np.testing.assert_allclose(panel.parameters["emission"][0].to_numpy(), [[0.75, 0.25], [0.75, 0.25], [0.25, 0.75]])
    assert panel.predictions.empty
    assert "native_label" not in panel.cells


@pytest.mark.parametrize(("n_participants", "pdch", "held_out"), [(686, 144, 322), (50, 10, 23), (4, 1, 2), (2, 1, 1)])
def test_participants_are_divided_in_proportion(evidial, n_participants, pdch, held_out):
    panel = simulate_panel(0, SimulationSettings(n_participants=n_participants), evidial)
    people = panel.cells.drop_duplicates("participant_id")
    assert len(people) == n_participants
    assert (people["source"] == "PDCH").sum() == pdch
    assert (people["split"] == "held_out").sum() == held_out
    check_predictions(panel.predictions, evidial, panel.cells)


# ---------------------------------------------------------------- what cannot be simulated


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_participants": 1}, ["n_participants", "1", "whole number from 2 up"]),
        ({"n_participants": 20.5}, ["n_participants", "20.5", "whole number"]),
        ({"n_participants": True}, ["n_participants", "True"]),
        ({"n_judges": 1}, ["n_judges", "1", "from 2 up"]),
        ({"n_judges": "3"}, ["n_judges", "'3'"]),
        ({"judge_families": ["a", "b"]}, ["judge_families", "one value per judge, 3 in all"]),
        ({"judge_families": "abc"}, ["judge_families", "'abc'"]),
        ({"coverage": 1.2}, ["coverage", "1.2", "from 0 to 1"]),
        ({"coverage": {"PDCH": 0.5}}, ["coverage", "exactly the keys PDCH, EDAIC"]),
        ({"coverage": {"PDCH": [0.5, 2], "EDAIC": 1}}, ["coverage.PDCH", "2"]),
        ({"invalid_share": -0.1}, ["invalid_share", "-0.1"]),
        ({"invalid_share": 0.7, "empty_share": 0.6}, ["empty_share", "0.6", "0.3"]),
        ({"sigma": -1}, ["sigma", "-1", "at least 0"]),
        ({"sigma": float("inf")}, ["sigma", "inf"]),
        ({"signal": 1.5}, ["signal", "1.5"]),
        ({"signal": [0.5, 0.5]}, ["signal", "3 in all"]),
        ({"emission_concentration": 0}, ["emission_concentration", "above 0"]),
        ({"sources": {"E-DAIC": 1}}, ["sources", "'E-DAIC'", "Did you mean 'EDAIC'?"]),
        ({"sources": {"PDCH": 0}}, ["sources.PDCH", "above 0"]),
        ({"sources": ["PDCH"]}, ["sources", "mapping"]),
        ({"dimensions": ["slep"]}, ["dimensions", "'slep'", "sleep_disturbance"]),
        ({"dimensions": ["fatigue", "fatigue"]}, ["dimensions", "different"]),
        ({"dimensions": ["concentration"]}, ["dimensions", "PDCH does not lack"]),
        ({"shares": {"PDCH": {"absent": 1}}}, ["shares", "EDAIC"]),
        ({"shares": {"PDCH": {"absent": 1}, "EDAIC": {"absnt": 1}}}, ["shares.EDAIC", "'absent'"]),
        ({"shares": {"PDCH": {"absent": 1}, "EDAIC": {"absent": 0.9}}}, ["shares.EDAIC", "sum to 0.9"]),
        ({"group_effects": -0.1}, ["group_effects", "-0.1"]),
        ({"group_effects": {"moods": {}}}, ["group_effects", "Did you mean 'mood'?"]),
        ({"group_effects": {"mood": {"absent": "x"}}}, ["group_effects.mood.absent", "'x'", "finite number"]),
        ({"scores": {"absent": [1]}}, ["scores", "exactly the keys"]),
        ({"held_out_share": 1}, ["held_out_share", "below 1"]),
        ({"audit_participants": 183}, ["audit_participants", "183", "from 1 to 182"]),
        ({"audit_cells": 75}, ["audit_cells", "75", "from 76 to 608"]),
        ({"systems": []}, ["systems", "at least one"]),
        ({"systems": [{"model": "m"}]}, ["systems", "answered_lacking"]),
        ({"systems": "all"}, ["systems", "'all'", "list"]),
        ({"system_agreement": 2}, ["system_agreement", "2"]),
        ({"n_participant": 3}, ["'n_participant'", "Did you mean 'n_participants'?"]),
    ],
)
def test_bad_settings_are_refused_by_name_value_and_range(evidial, settings, words):
    with pytest.raises(InputError) as caught:
        simulate_panel(0, SimulationSettings.from_mapping(settings), evidial)
    for word in words:
        assert word in str(caught.value)


def test_scores_need_positive_and_negative_labels(fact_check):
    with pytest.raises(InputError, match="not positive and negative"):
        simulate_panel(0, SimulationSettings(scores={"absent": [1.0]}), fact_check)


def test_a_negative_seed_and_a_bad_system_are_refused(evidial):
    with pytest.raises(InputError, match="seed is -1"):
        simulate_panel(-1, SimulationSettings(), evidial)
    with pytest.raises(InputError, match=r"systems\.m\.x\.correct_lacking.*1\.5"):
        System("m", "x", 0.5, 0.5, 1.5, 0.5)


# ---------------------------------------------------------------- YAML and the bundled demo


def test_yaml_has_one_key_per_setting_with_its_default():
    given = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "data" / "simulate.yaml"))
    assert SimulationSettings.from_mapping(given) == SimulationSettings()
    assert list(given) == list(SimulationSettings.__dataclass_fields__)


def test_systems_from_yaml():
    given = {"model": "m", "method": "x", "answered_lacking": 1, "answered_sufficient": 1}
    given |= {"correct_lacking": 0.5, "correct_sufficient": 0.5}
    settings = SimulationSettings.from_mapping({"systems": [given]})
    assert settings == replace(SimulationSettings(), systems=(System("m", "x", 1, 1, 0.5, 0.5),))


def test_bundled_demo_is_what_the_script_writes(tmp_path):
    script = ROOT / "scripts" / "make_demo.py"
    if not script.exists():
        pytest.skip("scripts/ is not part of this source tree")
    runpy.run_path(str(script))["main"](tmp_path)
    for name in TABLES:
        written = gzip.decompress((tmp_path / f"{name}.csv.gz").read_bytes())
        assert written == gzip.decompress(demo_path(name).read_bytes()), name
        # Bytes 4 to 8 of a gzip file are its time stamp.
        assert demo_path(name).read_bytes()[4:8] == bytes(4)


def test_bundled_demo_passes_the_door(evidial):
    paths = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "data" / "demo.yaml"))
    cells = read_cells(table_path(paths["cells"]), evidial)
    votes = read_votes(table_path(paths["votes"]), evidial)
    predictions = read_predictions(table_path(paths["predictions"]), evidial, cells)
    panel = build_panel(votes, cells, evidial)
    assert (len(panel.cells), len(predictions)) == (2_744, 12 * 87)
    assert abs(len(panel.vote_cell) - 5_240) < 20
    assert panel.judges["n_invalid"].gt(0).all()
    assert panel.judges["n_missing"].gt(0).all()
    assert not panel.judges["excluded"].any()
    truth = pd.read_csv(demo_path("truth"))
    assert set(truth["cell_id"]) == set(panel.cells.index)
    assert set(truth["state"]) == set(evidial.states)


def test_table_paths():
    assert table_path("demo:votes.csv.gz") == demo_path("votes")
    assert demo_path("votes").exists()
    assert table_path("votes.csv") == Path("votes.csv")
    with pytest.raises(InputError, match=r"Did you mean 'votes\.csv\.gz'"):
        table_path("demo:vote")
