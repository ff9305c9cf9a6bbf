"""Codebooks: the two that are shipped, and what a wrong one says."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from evidial_bayes.data.codebook import Codebook, Instrument
from evidial_bayes.data.errors import InputError

FOLDER = Path(__file__).parents[2] / "conf" / "codebook"
FIVE = ("absent", "partial", "conflicting", "sufficient_negative", "sufficient_positive")
SMALL = {
    "name": "small",
    "states": ["low", "high"],
    "labels": ["no", "yes"],
    "supports": {"low": "no", "high": "yes"},
    "sufficient": ["high"],
}


def shipped(name: str) -> Codebook:
    path = FOLDER / f"{name}.yaml"
    return Codebook.from_mapping(yaml.safe_load(path.read_text(encoding="utf-8")), file=str(path))


def test_evidial_is_the_taxonomy_of_the_paper():
    codebook = shipped("evidial")
    assert codebook.states == codebook.categories == FIVE
    assert codebook.labels == ("negative", "positive")
    assert len(codebook.dimensions) == 9
    assert set(codebook.dimensions.values()) == {"mood", "somatic", "cognitive"}
    assert codebook.instruments == {
        "PDCH": Instrument("HAMD-17", 7, "zh", ("concentration",)),
        "EDAIC": Instrument("PHQ-8", 14, "en", ("suicidal_ideation",)),
        "TalkDep": Instrument("BDI-II", 14, "en", ()),
    }
    assert set(codebook.descriptions) == set(FIVE)


def test_support_table_of_evidial():
    # Rows: negative, positive; 0 supported, 1 unsupported, 2 opposed (spec section 7).
    expected = [[1, 1, 1, 0, 2], [1, 1, 1, 2, 0]]
    support = shipped("evidial").support
    assert support.dtype == np.int8
    np.testing.assert_array_equal(support, expected)


def test_support_table_of_fact_check():
    # Rows: positive, negative, not_enough_info: settled evidence opposes "not enough info" as well.
    expected = [[1, 1, 1, 2, 0], [1, 1, 1, 0, 2], [0, 0, 1, 2, 2]]
    np.testing.assert_array_equal(shipped("fact_check").support, expected)


def test_reading_defaults_to_the_category_of_the_same_name():
    np.testing.assert_array_equal(shipped("evidial").reading, range(5))


def test_reading_may_merge_states_and_leave_categories_unread():
    codebook = Codebook.from_mapping(
        {"name": "x", "states": ["a", "b", "c"], "categories": ["unsure", "b", "c"], "reads": {"a": "b"}}
    )
    np.testing.assert_array_equal(codebook.reading, [1, 1, 2])
    assert codebook.reading.dtype == np.int64


def test_labels_are_optional_for_panels_without_predictions():
    codebook = Codebook.from_mapping({"name": "x", "states": ["1", "2"]})
    assert codebook.labels == ()
    assert codebook.supports == {"1": None, "2": None}
    assert codebook.support.shape == (0, 2)


def test_a_config_node_is_a_mapping_too():
    node = OmegaConf.load(FOLDER / "evidial.yaml")
    assert Codebook.from_mapping(node) == shipped("evidial")


def test_codebooks_compare_hash_and_pickle_by_value():
    one, other = shipped("evidial"), shipped("evidial")
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != shipped("fact_check")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": ["a"]}, r"book\.yaml: unknown key `state`; allowed: name, .*Did you mean 'states'\?"),
        ({"_target_": "os.system"}, r"book\.yaml: unknown key `_target_`; allowed: name, "),
        ({True: ["a"]}, r"book\.yaml: unknown key `True`"),
        ({"name": None}, r"book\.yaml: key `name` is missing"),
        ({"states": None}, r"book\.yaml: key `states` is missing"),
        ({"states": []}, r"key `states`: 0 given \(none\); at least 1 is needed"),
        ({"states": "low, high"}, r"key `states`: 'low, high' is no list; write \[a, b, \.\.\.\]"),
        ({"states": ["low", "high", "low"]}, r"key `states`: 'low' is listed 2 times; names must differ"),
        ({"categories": ["low"]}, r"key `categories`: 1 given \(low\); at least 2 are needed"),
        ({"categories": ["low", "low"]}, r"key `categories`: 'low' is listed 2 times"),
        ({"labels": ["no", "no"]}, r"key `labels`: 'no' is listed 2 times"),
        ({"labels": [False, True]}, r"key `labels`: False is no text\. YAML reads it as bool: put the"),
        ({"states": [0, 1]}, r"key `states`: 0 is no text\. YAML reads it as int: put"),
        ({"states": ["low", 1.5]}, r"key `states`: 1\.5 is no text\. YAML reads it as float"),
        ({"states": ["low", None]}, r"key `states`: None is no text\.$"),
        ({"states": ["low", " "]}, r"key `states`: an empty name is not allowed"),
        ({"states": ["low", "high "]}, r"key `states`: 'high ' has blanks around it; remove them"),
        ({"labels": ["no", "abstain"]}, r"key `labels`: 'abstain' is reserved for predictions without a"),
        ({"labels": ["failed", "yes"]}, r"key `labels`: 'failed' is reserved"),
        ({"supports": {"low": "no"}}, r"key `supports`: state 'high' is missing; give it a label"),
        ({"supports": None}, r"key `supports`: state 'low' is missing"),
        ({"supports": ["no", "yes"]}, r"key `supports`: \['no', 'yes'\] is no mapping"),
        (
            {"supports": {"low": "no", "hgih": "yes"}},
            r"key `supports`: 'hgih' is no state of .*; allowed: low, high\. Did you mean 'high'\?",
        ),
        (
            {"supports": {"low": "no", "high": "yess"}},
            r"key `supports`: 'yess' is no label of this codebook; allowed: no, yes\. Did you mean 'yes'\?",
        ),
        ({"supports": {"low": False, "high": "yes"}}, r"key `supports`: False is no text\. YAML"),
        ({"sufficient": ["full"]}, r"key `sufficient`: 'full' is no state .*; allowed: low, high"),
        ({"sufficient": None}, r"key `sufficient`: missing: list the states .*, or \[\]"),
        (
            {"supports": {"low": "no", "high": None}},
            r"key `sufficient`: state 'high' supports no label, so its evidence cannot settle one",
        ),
        ({"reads": {"lo": "low"}}, r"key `reads`: 'lo' is no state .* Did you mean 'low'\?"),
        ({"reads": {"low": "lo"}}, r"key `reads`: 'lo' is no category .*; allowed: low, high"),
        ({"categories": ["low", "top"]}, r"key `reads`: no category is called 'high'; name the one"),
        ({"dimensions": ["mood"]}, r"key `dimensions`: \['mood'\] is no mapping"),
        ({"dimensions": {"mood": 1}}, r"key `dimensions`: 1 is no text\. YAML reads it as int"),
        ({"descriptions": {"mid": "text"}}, r"key `descriptions`: 'mid' is no state"),
        ({"instruments": {"S": "PHQ-8"}}, r"key `instruments\.S`: 'PHQ-8' is no mapping with the keys"),
        (
            {"instruments": {"S": {"name": "PHQ-8", "window": 14, "language": "en"}}},
            r"key `instruments\.S`: unknown key `window`; allowed: .* Did you mean 'window_days'\?",
        ),
        (
            {"instruments": {"S": {"name": "PHQ-8", "window_days": 14}}},
            r"key `instruments\.S`: `language` is missing",
        ),
        (
            {"instruments": {"S": {"name": "PHQ-8", "window_days": "14", "language": "en"}}},
            r"key `instruments\.S\.window_days`: '14' is no positive whole number of days",
        ),
        (
            # Norwegian is `no` to YAML, which reads it as a boolean.
            {"instruments": {"S": {"name": "PHQ-8", "window_days": 14, "language": False}}},
            r"key `instruments\.S\.language`: False is no text\. YAML reads it as bool",
        ),
        (
            {
                "dimensions": {"sleep": "somatic"},
                "instruments": {"S": {"name": "P", "window_days": 7, "language": "en", "lacks": ["slep"]}},
            },
            r"key `instruments\.S\.lacks`: 'slep' is no dimension .*; allowed: sleep\. Did you mean",
        ),
    ],
)
def test_a_wrong_codebook_says_where_and_what(change, message):
    with pytest.raises(InputError, match=message) as caught:
        Codebook.from_mapping(SMALL | change, file="book.yaml")
    assert str(caught.value).startswith("book.yaml")
    assert "\n" not in str(caught.value)


def test_a_codebook_that_is_no_mapping():
    with pytest.raises(InputError, match=r"book\.yaml: a codebook is a mapping with the keys name, states"):
        Codebook.from_mapping(["a"], file="book.yaml")  # type: ignore[arg-type]
