"""The command line, in this process: help, hints, completion, and one message for what a user can mend."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import evidial_bayes
from evidial_bayes import cli, pipeline

CONF = Path(__file__).resolve().parents[1] / "conf"
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Every command runs in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def evidial(capsys):
    def run(*words):
        code = cli.main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def refused(evidial, *words):
    code, out, err = evidial(*words)
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert err.count("error: ") == 1
    return err[err.index("error: ") + 7 :].rstrip("\n")


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_overview_lists_the_commands(evidial, words):
    code, out, err = evidial(*words)
    assert (code, err) == (0, "")
    for name, command in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{command.summary}$", out, re.MULTILINE)
    assert "never a person's health" in out


def test_version_is_the_packages(evidial):
    expected = f"evidial {evidial_bayes.__version__}\n"
    assert evidial("--version")[:2] == (0, expected)
    assert evidial("audit", "--version")[:2] == (0, expected)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_is_in_words_and_names_every_group_and_option(evidial, command):
    code, out, _ = evidial(command, "--help")
    assert code == 0
    assert out.startswith(f"evidial {command}: ")
    groups = GROUPS if command != "simulate" else ["data", "codebook"]
    for group in groups:
        line = re.search(rf"^  {group} +(.*)$", out, re.MULTILINE)[1]
        options = {path.stem for path in (CONF / group).glob("*.yaml")}
        for option in options if command != "simulate" or group != "data" else {"simulate"}:
            assert re.search(rf"\b{option}\b", line)
    assert max(len(line) for line in out.splitlines()) <= 120
    assert "_target_" not in out
    assert not list(Path().iterdir())


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_names_only_settings_that_exist(evidial, command):
    out = evidial(command, "--help")[1]
    known = set(cli._known_keys(command, ["data=tables"] if command != "simulate" else []))
    for key in re.findall(r"\b(?:data|model|gate|inference|reference|uncertainty|prior)\.[a-z_]+(?:\.[a-z_]+)?\b", out):
        assert key.rstrip(".") in known, key


def test_a_codebook_of_ones_own_comes_from_a_folder(evidial):
    mine = Path("mine/codebook/rubric.yaml")
    mine.parent.mkdir(parents=True)
    text = (CONF / "codebook" / "fact_check.yaml").read_text(encoding="utf-8")
    mine.write_text(re.sub("^name: .*", "name: rubric", text, flags=re.MULTILINE), encoding="utf-8")
    code, out, _ = evidial("audit", "--config-dir", "mine", "codebook=rubric", "--cfg", "job")
    assert code == 0
    assert re.search(r"^codebook:\n  name: rubric$", out, re.MULTILINE)


def test_configuration_can_be_shown(evidial):
    code, out, _ = evidial("fit", "inference.num_samples=7", "--cfg", "job", "-p", "inference")
    assert code == 0
    assert "num_samples: 7" in out
    code, out, _ = evidial("fit", "--info", "searchpath")
    assert code == 0
    assert str(CONF) in out
    assert not list(Path().iterdir())


# ------------------------------------------------------------------ hints


def no_setting(given, meant):
    return f"there is no setting '{given}'. Did you mean '{meant}'?"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audti"], "there is no command 'audti'; commands: audit, fit, simulate. Did you mean 'audit'?"),
        (
            ["data=demo"],
            "a command comes first, as in `evidial audit data=demo`; commands: audit, fit, simulate.",
        ),
        (["fit", "inference.num_sample=3"], no_setting("inference.num_sample", "inference.num_samples")),
        (["fit", "num_samples=3"], no_setting("num_samples", "inference.num_samples")),
        (["fit", "uncertaint.draws=3"], no_setting("uncertaint.draws", "uncertainty.draws")),
        (["fit", "modl=x"], no_setting("modl", "model")),
        (["audit", "data=tables", "data.vots=x"], no_setting("data.vots", "data.votes")),
        (["simulate", "data.n_judge=3"], no_setting("data.n_judge", "data.n_judges")),
        (["fit", "zzz=1"], "there is no setting 'zzz'."),
        (
            ["fit", "model=laten_class"],
            "model=laten_class: no such option; model is one of dawid_skene, family_effect, family_reading, "
            "latent_class, misreading, severity, two_level. Did you mean 'latent_class'?",
        ),
        (["fit", "seed=abc"], "seed=abc: Value 'abc' of type 'str' could not be converted to Integer."),
        (
            ["fit", "gate.min_valid_share=x"],
            "gate.min_valid_share=x: Value 'x' of type 'str' could not be converted to Float.",
        ),
    ],
)
def test_mistakes_on_the_line_get_one_hint(evidial, words, message):
    assert refused(evidial, *words) == message
    assert not list(Path().iterdir()), "nothing ran, so nothing is left behind"


def test_unreadable_override_is_quoted(evidial):
    assert "'a=b=c}'" in refused(evidial, "fit", "a=b=c}")


def test_a_sweep_without_multirun_is_explained(evidial):
    assert "--multirun" in refused(evidial, "fit", "seed=1,2")


def test_unknown_flag_is_refused(evidial):
    code, _, err = evidial("fit", "--bogus")
    assert code == 2
    assert "--bogus" in err


# ------------------------------------------------------------------ completion


def complete(evidial, monkeypatch, line, shell="bash"):
    monkeypatch.setenv("COMP_LINE", line)
    code, out, err = evidial("-sc", f"query={shell}")
    assert err == ""
    return code, out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("evidial ", ["audit", "fit", "simulate"]),
        ("evidial a", ["audit"]),
        ("evidial zzz", []),
        ("evidial audit data=", ["data=demo", "data=simulate", "data=tables"]),
        ("~/bin/evidial audit data=", ["data=demo", "data=simulate", "data=tables"]),
        ("evidial fit quadrature=g", ["quadrature=gauss_hermite"]),
        ("evidial fit inference.num_c", ["inference.num_chains="]),
        ("evidial fit uncertainty.s", ["uncertainty.states="]),
        ("evidial audit data=tables data.", ["data.cells=", "data.predictions=", "data.votes="]),
        ("evidial audit data=tables data.votes=./v", ["data.votes=./votes.csv"]),
        ("evidial foo data=", []),
    ],
)
def test_tab_completes_commands_groups_settings_and_files(evidial, monkeypatch, line, words):
    Path("votes.csv").touch()
    code, found = complete(evidial, monkeypatch, line)
    assert code == 0
    assert found == words


def test_every_setting_is_offered_after_a_blank(evidial, monkeypatch):
    _, found = complete(evidial, monkeypatch, "evidial audit ")
    assert {"data=", "seed=", "model=", "experiment="} <= set(found)


def test_half_a_line_that_does_not_parse_is_met_with_silence(evidial, monkeypatch):
    assert complete(evidial, monkeypatch, "evidial fit a=b}")[1] == []


def test_fish_gets_one_word_per_line(evidial, monkeypatch):
    monkeypatch.setenv("COMP_LINE", "evidial ")
    assert evidial("-sc", "query=fish")[1] == "audit\nfit\nsimulate\n"


def test_completion_scripts_are_installed_for_evidial(evidial):
    assert evidial("-sc", "install=bash")[1].rstrip().endswith("hydra_bash_completion evidial")
    assert "complete -c evidial " in evidial("-sc", "install=fish")[1]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_works_in_bash(tmp_path):
    program = tmp_path / "bin" / "evidial"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m evidial_bayes.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = """
        eval "$(evidial -sc install=bash)"
        COMP_LINE="evidial fit quadrature=p" COMP_POINT=24 COMP_CWORD=2
        hydra_bash_completion
        echo "${COMPREPLY[@]}"
    """
    package = str(Path(evidial_bayes.__file__).parents[1])
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": package}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["quadrature=paper_grid"], done.stderr


def test_help_and_completion_do_not_wait_for_jax():
    code = "import sys, evidial_bayes.cli; print(sorted({'jax', 'numpyro', 'pandas'} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": str(Path(evidial_bayes.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


# ------------------------------------------------------------------ tables that cannot be used

VOTES = [(f"c{i}", judge, "absent") for i in range(4) for judge in ("ann", "ben")]
TABLES = {
    "votes": pd.DataFrame(VOTES, columns=["cell_id", "judge", "vote"]),
    "cells": pd.DataFrame(
        {
            "cell_id": [f"c{i}" for i in range(4)],
            "participant_id": ["p0", "p0", "p1", "p1"],
            "native_label": ["positive", "negative"] * 2,
            "split": ["dev", "dev", "test", "test"],
        }
    ),
    "predictions": pd.DataFrame(
        {"cell_id": ["c0", "c1"], "model": "m", "method": "direct", "prediction": ["positive", "abstain"]}
    ),
}


def change(table, row, column, value):
    frame = TABLES[table].copy()
    frame.loc[row, column] = value
    return {table: frame.to_csv(index=False).encode()}


def repeat(table):
    frame = TABLES[table]
    return {table: pd.concat([frame, frame.head(1)]).to_csv(index=False).encode()}


def rows(table, kept):
    return {table: TABLES[table][kept].to_csv(index=False).encode()}


def with_column(table, column, value):
    return {table: TABLES[table].assign(**{column: value}).to_csv(index=False).encode()}


def renamed(table, **columns):
    return {table: TABLES[table].rename(columns=columns).to_csv(index=False).encode()}


def without(table, column):
    return {table: TABLES[table].drop(columns=column).to_csv(index=False).encode()}


MALFORMED = {
    "column missing": (without("votes", "judge"), ("votes.csv", "judge")),
    "column misspelled": (
        renamed("cells", participant_id="participant"),
        ("cells.csv", "participant_id"),
    ),
    "empty file": ({"votes": b""}, ("votes.csv", "empty")),
    "header alone": ({"predictions": b"cell_id,model,method,prediction\n"}, ("predictions.csv", "no rows")),
    "wrong encoding": (
        {"votes": "cell_id,judge,vote\nc0,Jürgen,absent\n".encode("latin-1")},
        ("votes.csv", "line 2", "UTF-8"),
    ),
    "file missing": ({"votes": None}, ("votes.csv", "no such file")),
    "no vote in the codebook": (with_column("votes", "vote", "yes"), ("votes.csv", "'yes'", "absent")),
    "one judge": (rows("votes", slice(None, None, 2)), ("votes.csv", "one judge only ('ann')")),
    "repeated vote": (repeat("votes"), ("votes.csv", "c0", "ann")),
    "vote on an unknown cell": (change("votes", 3, "cell_id", "c9"), ("votes.csv", "line 5", "c9")),
    "prediction for an unknown cell": (
        change("predictions", 1, "cell_id", "c9"),
        ("predictions.csv", "line 3", "c9"),
    ),
    "label outside the codebook": (
        change("cells", 2, "native_label", "postive"),
        ("cells.csv", "line 4", "'postive'", "Did you mean 'positive'?"),
    ),
    "prediction outside the codebook": (
        change("predictions", 0, "prediction", "maybe"),
        ("predictions.csv", "line 2", "'maybe'", "abstain"),
    ),
    "participant on both sides of the split": (change("cells", 1, "split", "test"), ("cells.csv", "p0")),
    "repeated cell": (repeat("cells"), ("cells.csv", "c0")),
    "repeated prediction": (repeat("predictions"), ("predictions.csv", "c0")),
    "judges gated": (change("votes", slice(2, None), "vote", "??"), ("votes.csv", "ann")),
}


def write(tables):
    for name, frame in TABLES.items():
        Path(f"{name}.csv").write_bytes(frame.to_csv(index=False).encode())
    for name, content in tables.items():
        if content is None:
            Path(f"{name}.csv").unlink()
        else:
            Path(f"{name}.csv").write_bytes(content)
    return ["data=tables", *(f"data.{name}={name}.csv" for name in TABLES), "hydra.run.dir=out"]


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_table_gets_one_message_and_leaves_only_hydras_log(evidial, monkeypatch, fault):
    # The fit is never reached: all tables are checked before.
    monkeypatch.setattr(pipeline, "_fit", lambda *_: pytest.fail("a fit was begun"))
    tables, expected = MALFORMED[fault]
    message = refused(evidial, "audit", *write(tables))
    for part in expected:
        assert part in message
    assert len(message.splitlines()) <= 4
    left = {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}
    assert left == {".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml", "audit.log"}
    log = Path("out/audit.log").read_text(encoding="utf-8")
    assert message in log
    assert "Traceback" not in log


def test_tables_that_are_not_named_are_asked_for(evidial):
    assert refused(evidial, "audit", "data=tables") == "data.votes is missing: give data.votes=…"


def test_sweep_says_which_run_was_refused(evidial):
    code, _, err = evidial("audit", "-m", "seed=-1,-2", "hydra.sweep.dir=sweep")
    assert code == 2
    assert "seed=-1" in err
    assert "Traceback" not in err
    assert Path("sweep/0/audit.log").is_file()


# ------------------------------------------------------------------ everything else


def test_unexpected_errors_keep_their_traceback(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(pipeline.COMMANDS, "audit", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        cli.main(["audit"])


def test_interrupt_is_one_line(evidial, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(pipeline.COMMANDS, "audit", interrupted)
    code, _, err = evidial("audit")
    assert code == 130
    assert err.splitlines()[-1] == "error: interrupted; files written so far are whole."


def test_process_is_left_as_it_was(evidial, monkeypatch):
    import logging

    argv, handlers, level = sys.argv[:], logging.getLogger().handlers[:], logging.getLogger().level
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    evidial("simulate", "data.n_participants=1")
    assert sys.argv == argv
    assert (logging.getLogger().handlers, logging.getLogger().level) == (handlers, level)
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_no_library_chatters(evidial):
    code, _, err = evidial("simulate", "data.n_participants=10", "hydra.run.dir=out")
    assert code == 0
    assert [re.sub(r"^\d\d:\d\d:\d\d  ", "", line).split(":")[0] for line in err.splitlines()] == ["simulated"]


def test_paths_start_where_the_command_was_run(evidial):
    Path("deep").mkdir()
    words = ["simulate", "data.n_participants=10", "hydra.run.dir=deep/run"]
    assert evidial(*words)[0] == 0
    assert {path.name for path in Path("deep/run").glob("*.csv")} == {
        "votes.csv", "cells.csv", "predictions.csv", "truth.csv",
    }  # fmt: skip
