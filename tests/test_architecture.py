"""The rules of the house that a program can check."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
MODULES = sorted((PROJECT / "evidial_bayes").rglob("*.py"))
MAX_LINES = 300


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_imports_follow_the_flow_of_data():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_one_room(path):
    n_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert n_lines <= MAX_LINES, f"{n_lines} lines: a longer file wants a second room"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_assert_and_no_catch_all(path):
    # `python -O` drops asserts, so they cannot check what users give; a catch-all hides what went wrong.
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.Assert), f"assert in line {node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            caught = "" if node.type is None else ast.unparse(node.type)
            assert caught not in {"", "Exception", "BaseException"}, f"catch-all in line {node.lineno}"


@pytest.mark.parametrize("folder", ["utils", "helpers", "constants", "common", "misc"])
def test_no_room_without_a_concept(folder):
    assert not [name_of(path) for path in MODULES if path.stem == folder or path.parent.name == folder]
