import dataclasses
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import yaml

import evidial_bayes.audit as module
from evidial_bayes.audit import Uncertainty, audit, audit_draws
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.panel import build_panel
from evidial_bayes.metrics.support import METRICS
from evidial_bayes.reference.base import Reference
from evidial_bayes.reference.voting import plurality

CONF = Path(__file__).resolve().parents[1] / "conf" / "codebook"
FROZEN = Uncertainty(states=False, parameters=False, participants=False, draws=100)
COLUMNS = [
    *("model", "method", "metric", "n", "estimate", "lower", "upper"),
    *("share_states", "share_parameters", "share_participants", "undefined_share"),
    *("conditional_estimate", "conditional_lower", "conditional_upper"),
]


def read_codebook(name):
    return Codebook.from_mapping(yaml.safe_load((CONF / f"{name}.yaml").read_text("utf-8")))


EVIDIAL = read_codebook("evidial")


def panel_of(labels, participants=None, codebook=EVIDIAL, prefix="u"):
    """Cells in the given order with two votes each, which no test here reads except through plurality."""
    ids = [f"{prefix}{n}" for n in range(len(labels))]
    participants = range(len(labels)) if participants is None else participants
    cells = pd.DataFrame({"cell_id": ids, "participant_id": [f"p{p}" for p in participants], "native_label": labels})
    votes = pd.DataFrame(
        [
            (cell, judge, codebook.categories[(n * step) % len(codebook.categories)])
            for n, cell in enumerate(ids)
            for judge, step in (("j1", 1), ("j2", 3))
        ],
        columns=["cell_id", "judge", "vote"],
    )
    return build_panel(votes, cells, codebook)


def predict(panel, predictions, model="m", method="direct"):
    """One system's predictions for the first cells of the panel; None: not planned."""
    rows = [(cell, model, method, p) for cell, p in zip(panel.cells.index, predictions, strict=False) if p is not None]
    return pd.DataFrame(rows, columns=["cell_id", "model", "method", "prediction"])


def known(panel, states, resolved=None):
    """A reference that knows the state of every cell."""
    codes = [panel.codebook.states.index(state) for state in states]
    return soft(panel, np.eye(len(panel.codebook.states))[None, codes], resolved)


def soft(panel, conditional, resolved=None):
    """A reference with one pattern per cell."""
    n = len(panel.cells)
    return Reference(
        name="posterior",
        codebook=panel.codebook,
        cells=panel.coords["cell"],
        conditional=np.asarray(conditional, float),
        pattern=np.arange(n),
        resolved=np.ones(n, bool) if resolved is None else np.array(resolved, bool),
        n_votes=panel.n_votes,
    )


def value(table, metric, column="estimate", **system):
    rows = table[table["metric"] == metric]
    for key, name in system.items():
        rows = rows[rows[key] == name]
    return rows[column].item()


def absent_or_sufficient(p_absent):
    """State probabilities ``[…, 5]``: absent with the given probability, else sufficient_positive."""
    p = np.zeros((*np.shape(p_absent), 5))
    p[..., EVIDIAL.states.index("absent")] = p_absent
    p[..., EVIDIAL.states.index("sufficient_positive")] = 1 - np.asarray(p_absent)
    return p


# A random problem of the published size: 87 cells of 76 participants, three systems.
RNG = np.random.default_rng(20)
PANEL = panel_of(RNG.choice(EVIDIAL.labels, 87), [*range(76), *range(11)])
PREDICTIONS = pd.concat(
    predict(PANEL, RNG.choice([*EVIDIAL.labels, "abstain", "failed"], 87, p=[0.4, 0.4, 0.15, 0.05]), f"m{m}")
    for m in range(3)
)
POSTERIOR = soft(PANEL, RNG.dirichlet(np.full(5, 0.5), (50, 87)), RNG.random(87) < 0.9)


@pytest.mark.parametrize(("lacking", "ucr", "caliber"), [(42, 0.4828, 0.8077), (43, 0.4943, 0.8269)], ids=["42", "43"])
def test_published_table(lacking, ucr, caliber):
    # EviDial §4.2: 87 cells of 76 participants, 52 correct of 69 answered, 42 or 43 of them without support.
    panel = panel_of(["positive"] * 87, [*range(76), *range(11)])
    answers = ["positive"] * 52 + ["negative"] * 17 + ["abstain"] * 12 + ["failed"] * 6
    states = ["absent"] * 20 + ["partial"] * 15 + ["conflicting"] * 3 + ["sufficient_negative"] * (lacking - 38)
    states += ["sufficient_positive"] * (87 - lacking)
    table = audit(jax.random.key(0), predict(panel, answers), panel, known(panel, states), FROZEN).table
    assert value(table, "ucr") == lacking / 87
    assert value(table, "hit_caliber") == lacking / 52
    assert round(value(table, "ucr"), 4) == ucr
    assert round(value(table, "hit_caliber"), 4) == caliber
    assert value(table, "correct_opposed") == (lacking - 38) / 87
    assert value(table, "accuracy") == 52 / 69
    assert (table["n"] == 87).all()
    assert table["lower"].equals(table["estimate"])
    assert table["upper"].equals(table["estimate"])


def test_hand_worked_table_evidial():
    # label       +      +       +         +      -      -        +   -        +    +      -       +
    # state       suff+  absent  conflict  suff-  suff-  partial  ?   ?        ?    suff+  suff+   absent
    # prediction  +      +       +         +      -      -        +   +        abs  abs    failed  -
    # outcome     S      U       U         D      S      U        Rc  R,wrong  R                   wrong
    labels = [{"+": "positive", "-": "negative"}[sign] for sign in "++++--+-++-+"]
    states = [
        "sufficient_positive",
        "absent",
        "conflicting",
        "sufficient_negative",
        "sufficient_negative",
        "partial",
    ]
    states += ["absent"] * 3 + ["sufficient_positive", "sufficient_positive", "absent"]
    resolved = [True] * 6 + [False] * 3 + [True] * 3
    answers = ["positive"] * 4 + ["negative"] * 2 + ["positive"] * 2 + ["abstain"] * 2 + ["failed", "negative"]
    panel = panel_of(labels)
    table = audit(jax.random.key(0), predict(panel, answers), panel, known(panel, states, resolved), FROZEN).table
    # N 12, C 7 of 9 answered, S 2, U 3, D 1, R 3, R_c 1, abstained 2, failed 1.
    expected = {
        "ucr": 4 / 9,
        "hit_caliber": 4 / 6,
        "accuracy": 7 / 9,
        "coverage": 9 / 12,
        "abstention_rate": 2 / 12,
        "failure_rate": 1 / 12,
        "supported_correct_rate": 2 / 9,
        "ucr_lower": 4 / 12,
        "ucr_upper": 5 / 12,
        "hit_caliber_lower": 4 / 7,
        "hit_caliber_upper": 5 / 7,
        "correct_supported": 2 / 12,
        "correct_unsupported": 3 / 12,
        "correct_opposed": 1 / 12,
        "correct_unresolved": 1 / 12,
        "incorrect": 2 / 12,
        "not_answered": 3 / 12,
    }
    assert dict(zip(table["metric"], table["estimate"], strict=True)) == expected
    assert dict(zip(table["metric"], table["conditional_estimate"], strict=True)) == expected


def test_hand_worked_table_fact_check():
    # Here "not enough info" is supported by absent and partial evidence, opposed by sufficient evidence for a
    # side, and unsupported by conflicting evidence, which supports no label.
    # label       NEI      NEI      NEI          NEI    pos     pos      neg    neg          pos
    # state       absent   partial  conflicting  suff+  absent  suff-    suff-  conflicting  suff+
    # prediction  NEI      NEI      NEI          NEI    pos     pos      neg    neg          NEI
    # outcome     S        S        U            D      U       D        S      U            wrong
    codebook = read_codebook("fact_check")
    labels = ["not_enough_info"] * 4 + ["positive"] * 2 + ["negative"] * 2 + ["positive"]
    states = ["absent", "partial", "conflicting", "sufficient_positive", "absent", "sufficient_negative"]
    states += ["sufficient_negative", "conflicting", "sufficient_positive"]
    panel = panel_of(labels, codebook=codebook)
    predictions = predict(panel, [*labels[:-1], "not_enough_info"])
    table = audit(jax.random.key(0), predictions, panel, known(panel, states), FROZEN).table
    assert value(table, "correct_supported") == 3 / 9
    assert value(table, "correct_unsupported") == 3 / 9
    assert value(table, "correct_opposed") == 2 / 9
    assert value(table, "incorrect") == 1 / 9
    assert value(table, "ucr") == 5 / 9
    assert value(table, "hit_caliber") == 5 / 8


def test_table_and_dataset_have_the_agreed_shape():
    predictions = PREDICTIONS.assign(method=np.where(PREDICTIONS["model"] == "m1", "chain", "direct"))
    result = audit(jax.random.key(1), predictions, PANEL, POSTERIOR, Uncertainty(draws=200), rival=plurality(PANEL))
    rival = ["plurality_estimate", "plurality_lower", "plurality_upper"]
    assert result.table.columns.tolist() == COLUMNS + rival
    assert result.table["metric"].tolist() == list(METRICS) * 3
    assert result.draws.sizes == {"draw": 200, "system": 3}
    assert list(result.draws.data_vars) == list(METRICS)
    assert result.draws["model"].values.tolist() == ["m0", "m1", "m2"]
    assert result.draws["method"].values.tolist() == ["direct", "chain", "direct"]
    assert result.draws.attrs["panel_hash"] == PANEL.hash
    result.draws.to_netcdf()  # attributes and coordinates can be stored
    without = audit(jax.random.key(1), predictions, PANEL, POSTERIOR, Uncertainty(draws=200)).table
    assert without.columns.tolist() == COLUMNS
    pd.testing.assert_frame_equal(without, result.table[COLUMNS])
    ci = result.draws["ucr"].quantile([0.025, 0.975], dim="draw")
    ucr = result.table[result.table["metric"] == "ucr"]
    np.testing.assert_allclose(ucr[["lower", "upper"]].to_numpy().T, ci)


def test_all_reference_switches_off_is_the_conditional_bootstrap():
    settings = Uncertainty(states=False, parameters=False, weights="multinomial", draws=300)
    key = jax.random.key(2)
    result = audit(key, PREDICTIONS, PANEL, POSTERIOR, settings)
    # The same bootstrap as a plain loop over predictions in exact arithmetic.
    n_participants = len(PANEL.coords["participant"])
    stream = module._stream(key, "participants", 0)
    weights = np.asarray(module.participant_weights(stream, 300, n_participants, "multinomial"))
    state = POSTERIOR.map_state
    label = PANEL.cells["native_label"].map(EVIDIAL.labels.index)
    draws = {"ucr": [], "hit_caliber": [], "accuracy": [], "coverage": []}
    for weight in weights[:, PANEL.participant]:
        planned = lacking = hits = settled = correct = answered = Fraction(0)
        for row in PREDICTIONS[PREDICTIONS["model"] == "m1"].itertuples():
            cell = PANEL.cells.index.get_loc(row.cell_id)
            w = Fraction(weight[cell])
            planned += w
            settled += w * bool(POSTERIOR.resolved[cell] or row.prediction == "failed")
            answered += w * (row.prediction in EVIDIAL.labels)
            if row.prediction == PANEL.cells["native_label"].iloc[cell]:
                correct += w
                if POSTERIOR.resolved[cell]:
                    hits += w
                    lacking += w * bool(EVIDIAL.support[label.iloc[cell], state[cell]])
        draws["ucr"].append(float(lacking / settled))
        draws["hit_caliber"].append(float(lacking / hits))
        draws["accuracy"].append(float(correct / answered))
        draws["coverage"].append(float(answered / planned))
    for metric, expected in draws.items():
        assert result.draws[metric].sel(system=1).values.tolist() == expected
        assert abs(value(result.table, metric, "lower", model="m1") - np.quantile(expected, 0.025)) < 1e-12
        assert abs(value(result.table, metric, "upper", model="m1") - np.quantile(expected, 0.975)) < 1e-12
    for column in ("estimate", "lower", "upper"):
        np.testing.assert_array_equal(result.table[column], result.table[f"conditional_{column}"])


def test_conditional_and_rival_columns_are_the_audits_they_name():
    settings, key, rival = Uncertainty(draws=200), jax.random.key(3), plurality(PANEL)
    table = audit(key, PREDICTIONS, PANEL, POSTERIOR, settings, rival=rival).table
    frozen = dataclasses.replace(settings, states=False, parameters=False)
    conditional = audit(key, PREDICTIONS, PANEL, POSTERIOR, frozen).table
    other = audit(key, PREDICTIONS, PANEL, rival, settings).table
    for column in ("estimate", "lower", "upper"):
        np.testing.assert_array_equal(table[f"conditional_{column}"], conditional[column])
        np.testing.assert_array_equal(table[f"plurality_{column}"], other[column])
    draws = audit_draws(key, PREDICTIONS, PANEL, POSTERIOR, settings)
    assert draws.identical(audit(key, PREDICTIONS, PANEL, POSTERIOR, settings).draws)


def test_bayesian_and_classical_bootstrap_agree_in_width():
    widths = []
    for weights in ("bayesian", "multinomial"):
        settings = Uncertainty(states=False, parameters=False, weights=weights)
        table = audit(jax.random.key(4), PREDICTIONS, PANEL, POSTERIOR, settings).table
        rows = table[table["metric"].isin(["ucr", "hit_caliber", "accuracy", "coverage"])]
        widths.append((rows["upper"] - rows["lower"]).to_numpy())
    # A width of two 4,000-draw quantiles has a relative standard error of about 1.5 %, two of them 2.2 %; the
    # two bootstraps differ by another 1/(2P) = 0.7 %.
    np.testing.assert_allclose(widths[0], widths[1], rtol=0.007 + 4.5 * 0.022)


# One correct prediction per participant and cell; under parameters 1 a cell's evidence is absent
# with probability 0.2, under parameters 2 with 0.4. UCR is the weighted share of absent cells; with 40 cells
#   Var E[M|θ] = 0.1² = 0.01,
#   E Var(E[M|θ,Z]|θ) = (0.2·0.8 + 0.4·0.6)/2/40 = 0.005, and under the Bayesian bootstrap
#   E Var(M|θ,Z) = E[p̂(1 − p̂)]/(40 + 1) = (0.2·0.8 + 0.4·0.6)/2·(1 − 1/40)/41.
N_CELLS = 40
V_PARAMETERS, V_STATES = 0.01, 0.2 / N_CELLS
V_PARTICIPANTS = 0.2 * (1 - 1 / N_CELLS) / (N_CELLS + 1)


@pytest.fixture(scope="module")
def two_point():
    panel = panel_of(["positive"] * N_CELLS)
    conditional = absent_or_sufficient(np.repeat([[0.2], [0.4]], N_CELLS, axis=1))
    return predict(panel, ["positive"] * N_CELLS), panel, soft(panel, conditional)


@pytest.mark.parametrize(
    ("states", "parameters", "participants"),
    [(True, True, True), (True, True, False), (True, False, True), (False, True, True), (True, False, False)],
)
def test_variance_shares_in_closed_form(two_point, states, parameters, participants):
    n = 20_000
    settings = Uncertainty(states=states, parameters=parameters, participants=participants, draws=n)
    result = audit(jax.random.key(5), *two_point, settings)
    if states and parameters:
        parts = np.array([V_STATES, V_PARAMETERS, V_PARTICIPANTS])
    elif states:
        # The mean probability is 0.3 for every cell, and states are independent.
        parts = np.array([0.21 / N_CELLS, 0, 0.21 * (1 - 1 / N_CELLS) / (N_CELLS + 1)])
    else:
        # Sufficient evidence is the more probable state throughout: UCR is 0 in every draw.
        parts = np.zeros(3)
    parts[2] *= participants
    total = parts.sum()
    draws = result.draws["ucr"].values[:, 0]
    shares = [value(result.table, "ucr", f"share_{s}") for s in ("states", "parameters", "participants")]
    if total == 0:
        assert (draws == 0).all()
        assert np.isnan(shares).all()
        return
    # A sample variance of a bounded, light-tailed variable has relative standard error at most √2/√n.
    np.testing.assert_allclose(draws.var(), total, rtol=4.5 * np.sqrt(2 / n))
    np.testing.assert_allclose(shares, parts / total, atol=4.5 * np.sqrt(2 / n))
    np.testing.assert_array_equal(np.array(shares)[parts == 0], 0)
    expected = 0.3
    assert abs(value(result.table, "ucr") - expected) < 4.5 * np.sqrt(total / n)


def test_shared_parameters_widen_the_interval(two_point):
    # With shared parameters the variance is V_θ + V_Z = 0.015, with independent states 0.3·0.7/40 = 0.00525.
    widths = []
    for parameters in (True, False):
        settings = Uncertainty(parameters=parameters, participants=False)
        table = audit(jax.random.key(6), *two_point, settings).table
        widths.append(value(table, "ucr", "upper") - value(table, "ucr", "lower"))
    assert widths[0] > 1.4 * widths[1]  # √(0.015/0.00525) = 1.69, less what a bimodal shape and 1/40 steps take


def test_metrics_that_the_reference_does_not_touch():
    table = audit(jax.random.key(7), PREDICTIONS, PANEL, POSTERIOR, Uncertainty(draws=400)).table
    rows = table[table["metric"].isin(["accuracy", "coverage", "abstention_rate", "incorrect", "not_answered"])]
    assert (rows["share_participants"] == 1).all()
    assert (rows["estimate"] == rows["conditional_estimate"]).all()
    counts = PREDICTIONS[PREDICTIONS["model"] == "m0"]
    native = PANEL.cells["native_label"][counts["cell_id"]].to_numpy()
    answered = counts["prediction"].isin(EVIDIAL.labels).sum()
    assert value(table, "accuracy", model="m0") == (counts["prediction"] == native).sum() / answered
    assert value(table, "coverage", model="m0") == answered / 87


def test_undefined_draws_are_counted():
    # The first system is never right: hit caliber has no value. The second is right for one participant of
    # five: it has a value where the bootstrap draws that one, (4/5)⁵ of the draws have none.
    panel = panel_of(["positive"] * 5)
    predictions = pd.concat(
        [
            predict(panel, ["negative"] * 5, "never"),
            predict(panel, ["positive", *["negative"] * 4], "once"),
        ]
    )
    settings = Uncertainty(weights="multinomial")
    table = audit(jax.random.key(8), predictions, panel, known(panel, ["absent"] * 5), settings).table
    never = table[(table["model"] == "never") & (table["metric"] == "hit_caliber")]
    numbers = never.drop(columns=["model", "method", "metric", "n", "undefined_share"])
    assert numbers.isna().all(axis=None)
    assert never["undefined_share"].item() == 1
    p = (4 / 5) ** 5
    share = value(table, "hit_caliber", "undefined_share", model="once")
    assert abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / 4000)
    assert value(table, "hit_caliber", "lower", model="once") == 1
    assert value(table, "ucr", "undefined_share", model="never") == 0


def test_systems_share_states_and_weights():
    twice = pd.concat([PREDICTIONS, PREDICTIONS.assign(model=PREDICTIONS["model"] + " again")])
    draws = audit_draws(jax.random.key(9), twice, PANEL, POSTERIOR, Uncertainty(draws=100))
    assert draws["model"].values.tolist() == ["m0", "m0 again", "m1", "m1 again", "m2", "m2 again"]
    for metric in METRICS:
        first, second = draws[metric].values[:, ::2], draws[metric].values[:, 1::2]
        np.testing.assert_allclose(first, second, rtol=1e-12, err_msg=metric)


def test_order_of_prediction_rows_leaves_no_trace():
    arguments = (PANEL, POSTERIOR, Uncertainty(draws=100))
    expected = audit(jax.random.key(10), PREDICTIONS, *arguments).table
    shuffled = PREDICTIONS.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(audit(jax.random.key(10), shuffled, *arguments).table, expected)


def test_names_of_cells_leave_no_trace():
    other = panel_of(PANEL.cells["native_label"].tolist(), [*range(76), *range(11)], prefix="another ")
    renamed = PREDICTIONS.assign(cell_id="another " + PREDICTIONS["cell_id"].str.removeprefix("u"))
    reference = dataclasses.replace(POSTERIOR, cells=other.coords["cell"])
    settings = Uncertainty(draws=100)
    pd.testing.assert_frame_equal(
        audit(jax.random.key(11), renamed, other, reference, settings).table,
        audit(jax.random.key(11), PREDICTIONS, PANEL, POSTERIOR, settings).table,
    )


def test_cells_without_predictions_leave_no_trace():
    # Ten more cells of two more participants at the front, unresolved.
    labels = ["negative"] * 10 + PANEL.cells["native_label"].tolist()
    wide = panel_of(labels, [*([90, 91] * 5), *range(76), *range(11)])
    shifted = PREDICTIONS.assign(
        cell_id="u" + (PREDICTIONS["cell_id"].str.removeprefix("u").astype(int) + 10).astype(str)
    )
    extra = np.broadcast_to(absent_or_sufficient(0.5), (50, 10, 5))
    reference = soft(wide, np.concatenate([extra, POSTERIOR.conditional], axis=1), [*[False] * 10, *POSTERIOR.resolved])
    settings = Uncertainty(draws=100)
    got = audit(jax.random.key(12), shifted, wide, reference, settings).table
    expected = audit(jax.random.key(12), PREDICTIONS, PANEL, POSTERIOR, settings).table
    pd.testing.assert_frame_equal(got, expected)


def test_reference_in_another_order_or_with_fewer_cells():
    order = np.random.default_rng(0).permutation(87)
    reordered = Reference(
        name="posterior",
        codebook=EVIDIAL,
        cells=POSTERIOR.cells[order],
        conditional=POSTERIOR.conditional,
        pattern=order,
        resolved=POSTERIOR.resolved[order],
        n_votes=POSTERIOR.n_votes[order],
    )
    settings = Uncertainty(draws=100)
    expected = audit(jax.random.key(13), PREDICTIONS, PANEL, POSTERIOR, settings).table
    got = audit(jax.random.key(13), PREDICTIONS, PANEL, reordered, settings).table
    pd.testing.assert_frame_equal(got, expected)


def test_runs_are_planned_predictions_of_their_own():
    panel = panel_of(["positive"] * 2)
    runs = [predict(panel, answers).assign(run=str(n)) for n, answers in enumerate([["positive"] * 2, ["negative"]])]
    table = audit(
        jax.random.key(14), pd.concat(runs), panel, known(panel, ["absent", "sufficient_positive"]), FROZEN
    ).table
    assert (table["n"] == 3).all()
    assert value(table, "ucr") == 1 / 3
    assert value(table, "accuracy") == 2 / 3


@pytest.mark.parametrize("draws", [100, 110, 250])
def test_reference_draws_are_thinned_or_repeated_evenly(draws):
    # 110 parameter draws, each certain: in the d-th the evidence is absent in the first d of 110 cells.
    panel = panel_of(["positive"] * 110)
    conditional = absent_or_sufficient((np.arange(110)[None] < np.arange(110)[:, None]).astype(float))
    values = audit_draws(
        jax.random.key(15),
        predict(panel, ["positive"] * 110),
        panel,
        soft(panel, conditional),
        Uncertainty(participants=False, draws=draws),
    )["ucr"].values[:, 0]
    used = np.bincount((values * 110).round().astype(int), minlength=110)
    assert used.sum() == draws
    assert used.max() - used.min() <= 1


def test_interval_settings_reach_the_table():
    arguments = (jax.random.key(16), PREDICTIONS, PANEL, POSTERIOR)
    settings = Uncertainty(draws=400, interval="hdi", ci_prob=0.8)
    result = audit(*arguments, settings)
    for metric in METRICS:
        # The shortest of all windows over 80 % of the gaps between 400 sorted draws.
        ordered = np.sort(result.draws[metric].values[:, 0])
        shortest = (ordered[320:] - ordered[:-320]).min()
        width = value(result.table, metric, "upper", model="m0") - value(result.table, metric, "lower", model="m0")
        assert abs(width - shortest) < 1e-12
    narrow, wide = (audit(*arguments, Uncertainty(draws=400, ci_prob=p)).table for p in (0.8, 0.99))
    assert (wide["lower"] <= narrow["lower"]).all()
    assert (wide["upper"] >= narrow["upper"]).all()


def test_many_cells_are_worked_through_in_chunks(monkeypatch):
    settings = Uncertainty(draws=400)
    whole = audit(jax.random.key(17), PREDICTIONS, PANEL, POSTERIOR, settings).draws
    monkeypatch.setattr(module, "CHUNK", 150 * 87)
    chunked = audit(jax.random.key(17), PREDICTIONS, PANEL, POSTERIOR, settings).draws
    # Every chunk draws from streams of its own: no draw repeats, and the distribution is the same.
    assert chunked.sizes == whole.sizes
    assert len(np.unique(chunked["ucr"].values[:, 0])) > 350
    for metric in ("ucr", "accuracy"):
        spread = whole[metric].std("draw") * np.sqrt(2 / 400)
        assert (abs(chunked[metric].mean("draw") - whole[metric].mean("draw")) < 4.5 * spread).all()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"draws": 99}, "uncertainty.draws=99: allowed are whole numbers from 100"),
        ({"draws": 1000.0}, "uncertainty.draws=1000.0"),
        ({"ci_prob": 0.0}, "uncertainty.ci_prob=0.0: allowed are numbers between 0 and 1"),
        ({"ci_prob": 95}, "uncertainty.ci_prob=95"),
        ({"ci_prob": float("nan")}, "uncertainty.ci_prob=nan"),
        ({"weights": "bayes"}, "allowed are bayesian, multinomial. Did you mean 'bayesian'?"),
        ({"interval": "eti"}, "uncertainty.interval='eti': allowed are quantile, hdi"),
        ({"states": "yes"}, "uncertainty.states='yes': allowed are true and false"),
    ],
)
def test_settings_outside_what_is_allowed(setting, message):
    with pytest.raises(InputError) as error:
        Uncertainty(**setting)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.iloc[:0], "no rows"),
        (lambda table: table.drop(columns="method"), "`method` is missing"),
        (lambda table: table.assign(cell_id="u99"), "has no cell 'u99'"),
        (lambda table: table.assign(prediction="positiv"), "Did you mean 'positive'?"),
    ],
)
def test_predictions_that_cannot_be_audited(change, message):
    with pytest.raises(InputError) as error:
        audit(jax.random.key(0), change(PREDICTIONS[:1]), PANEL, POSTERIOR, FROZEN)
    assert message in str(error.value)


def test_cells_outside_the_reference():
    part = soft(panel_of(["positive"] * 80), POSTERIOR.conditional[:, :80])
    with pytest.raises(InputError, match="7 of 87 cells are not in the reference 'posterior', the first is 'u80'"):
        audit(jax.random.key(0), PREDICTIONS, PANEL, part, FROZEN)
