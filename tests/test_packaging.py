"""What leaves the house: the wheel, the lock file, and the way an environment is set up."""

import ast
import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import evidial_bayes
from evidial_bayes.data.demo import demo_path

PROJECT = Path(__file__).resolve().parents[1]
METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (PROJECT / "requirements.lock").read_text(encoding="utf-8")
#: A run that goes through every stage in little time; its numbers mean nothing.
TINY = (
    "inference.num_warmup=20",
    "inference.num_samples=20",
    "inference.num_chains=1",
    "inference.max_tree_depth=4",
    "uncertainty.draws=100",
)


def run(command, cwd, **environment):
    """Run without what a developer's shell, or the make that runs the tests, passes on to its children."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JAX_", "MAKE", "MFLAGS"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )


# ------------------------------------------------------------------ the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out], PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Bin folder of an empty environment that has the wheel and can see this environment's dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    done = run([*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # Written after the install, so that pip saw an empty environment. Python reads no .pth files in a folder
    # that is itself named by one, so the editable install of this project stays out of sight.
    own = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).stdout.strip())
    seen = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (own / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(seen)), encoding="utf-8")
    return folder / "bin"


def test_wheel_ships_configuration_data_and_types(wheel):
    shipped = set(zipfile.ZipFile(wheel).namelist())
    package, conf = PROJECT / "evidial_bayes", PROJECT / "conf"
    wanted = {f"evidial_bayes/conf/{path.relative_to(conf)}" for path in conf.rglob("*.yaml")}
    wanted |= {str(path.relative_to(PROJECT)) for path in package.rglob("*") if path.suffix in {".py", ".gz", ".typed"}}
    assert len(wanted) > 10
    assert wanted <= shipped
    top = {name.split("/")[0] for name in shipped}
    assert top == {"evidial_bayes", f"evidial_bayes-{evidial_bayes.__version__}.dist-info"}


def test_installed_wheel_is_the_one_that_runs(installed, tmp_path):
    done = run([installed / "python", "-c", "import evidial_bayes; print(evidial_bayes.__file__)"], tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(installed.parent.resolve()), done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("audit", "--help"), ("audit", "--cfg", "job")])
def test_installed_command_answers(installed, tmp_path, arguments):
    done = run([installed / "evidial", *arguments], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "audit" in done.stdout
    assert not any(tmp_path.iterdir()), "asking for help leaves nothing behind"


def test_installed_command_audits_the_demo_from_any_folder(installed, tmp_path):
    done = run(
        [installed / "evidial", "audit", "hydra.run.dir=out", *TINY],
        tmp_path,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "posterior.nc",
        "reference.parquet",
        "audit.csv",
        "audit.parquet",
        "checks.json",
        "figures",
    } <= written


def test_import_is_light():
    code = "import sys, evidial_bayes; print(sorted({'jax', 'numpy', 'pandas', 'hydra'} & set(sys.modules)))"
    done = run([sys.executable, "-c", code], PROJECT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_readme_flow_runs_as_printed(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert "NUTS()" in code
    for name in ("votes", "cells", "predictions"):
        (tmp_path / f"{name}.csv").write_bytes(gzip.decompress(demo_path(name).read_bytes()))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code.replace("NUTS()", "NUTS(num_warmup=20, num_samples=20, num_chains=1, max_tree_depth=4)"), names)
    table = names["result"].table
    assert set(table["metric"]) >= {"ucr", "hit_caliber", "accuracy", "coverage"}
    assert len(table.drop_duplicates(["model", "method"])) == 12


@pytest.mark.parametrize("module", ["models.priors", "inference.result", "reference.posterior"])
def test_arviz_may_be_imported_first(module):
    # ArviZ imports numpyro lazily, and what is then imported through the lazy module is half loaded.
    code = f"import arviz, evidial_bayes.{module}, numpyro; print(numpyro.distributions.distribution.Unit.__name__)"
    done = run([sys.executable, "-c", code], PROJECT)
    assert done.stdout.strip() == "Unit", done.stdout + done.stderr


# ------------------------------------------------------------------ versions and dependencies


def test_version_is_the_same_everywhere():
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == evidial_bayes.__version__
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[(\d[^]]*)\]", changelog, re.MULTILINE)[1] == evidial_bayes.__version__


def test_every_import_is_a_declared_dependency():
    declared = {canonicalize_name(Requirement(text).name) for text in METADATA["dependencies"]}
    imported = set()
    for path in (PROJECT / "evidial_bayes").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    providers = packages_distributions()
    third_party = imported - set(sys.stdlib_module_names) - {"evidial_bayes"}
    missing = {
        name for name in third_party if not declared & {canonicalize_name(d) for d in providers.get(name, [name])}
    }
    assert not missing


def locked():
    """Name, version, marker and number of hashes of every entry of the lock file."""
    entries = re.sub(r"\\\n\s*", " ", LOCK)
    for line in entries.splitlines():
        if line and not line.lstrip().startswith("#"):
            pin, *hashes = line.split(" --hash=")
            yield Requirement(pin.strip()), hashes


def test_lock_pins_every_package_with_hashes():
    entries = list(locked())
    assert len(entries) > 50
    for requirement, hashes in entries:
        assert re.fullmatch(r"==[^=*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", text.strip()) for text in hashes), requirement


def test_lock_names_no_place():
    options = {option for option in re.findall(r"--[a-z-]+", LOCK) if option != "--hash"}
    assert not options
    assert not re.findall(r"https?:|file:|@ |/[a-z]+/", LOCK)


def test_lock_meets_the_floors():
    pins = {canonicalize_name(requirement.name): requirement for requirement, _ in locked()}
    extras = [text for group in METADATA["optional-dependencies"].values() for text in group]
    for text in METADATA["dependencies"] + extras:
        wanted = Requirement(text)
        pin = pins[canonicalize_name(wanted.name)]
        (version,) = [spec.version for spec in pin.specifier]
        assert wanted.specifier.contains(version, prereleases=True), (
            f"{text}, but the lock has {version}: run make lock"
        )


# ------------------------------------------------------------------ set-up


@pytest.fixture
def bare_tree(tmp_path):
    """Tree with the Makefile alone, and a PATH with no interpreter but those that `interpreter` fakes."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(PROJECT / name, tmp_path / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cmp", "rm", "cp"):
        (tools / name).symlink_to(shutil.which(name))
    return tmp_path


def interpreter(tree, name, version):
    """Fake interpreter: answers what the Makefile asks, and notes what it is then told to do."""
    runs = (
        f'''case "$2" in
      *print*sys.version_info*) echo {version} ;;
      *sys.version_info*) exit {int(tuple(map(int, version.split("."))) < (3, 12))} ;;
      *ensurepip*) exit 0 ;;
      *) echo "{name} $*" >> used; exit 1 ;;
    esac'''
        if version
        else 'echo "no version is selected" >&2; exit 127'
    )
    path = tree / "tools" / name
    path.write_text(f"#!/bin/sh\n{runs}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def make(tree, *arguments):
    return run([shutil.which("make"), "test", *arguments], tree, PATH=str(tree / "tools"))


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@needs_make
def test_old_python_gets_one_line(bare_tree):
    interpreter(bare_tree, "python3.12", None)
    interpreter(bare_tree, "python3", "3.11.7")
    done = make(bare_tree)
    assert done.returncode != 0
    line, *rest = done.stderr.strip().splitlines()
    assert line.startswith(
        "Python 3.12 or newer is needed; found python3.13 (does not run), python3.12 (does not run), "
    )
    assert "python3 (3.11.7)" in line
    assert all(text.startswith("make: ***") for text in rest)
    assert not (bare_tree / ".venv").exists()


@needs_make
def test_first_interpreter_that_runs_is_taken(bare_tree):
    interpreter(bare_tree, "python3.13", None)
    interpreter(bare_tree, "python3.12", "3.12.1")
    interpreter(bare_tree, "python3", "3.13.2")
    make(bare_tree)
    assert (bare_tree / "used").read_text(encoding="utf-8").split()[0] == "python3.12"


@needs_make
def test_named_interpreter_is_taken_alone(bare_tree):
    interpreter(bare_tree, "python3.13", "3.13.0")
    old = interpreter(bare_tree, "old", "3.10.2")
    done = make(bare_tree, f"PYTHON={old}")
    assert f"found {old} (3.10.2)" in done.stderr
    assert not (bare_tree / "used").exists()


@needs_make
def test_failed_setup_leaves_no_stamp(bare_tree):
    interpreter(bare_tree, "python3", "3.13.0")
    stamp = bare_tree / ".venv" / ".ready"
    stamp.parent.mkdir()
    stamp.write_text(f"{bare_tree}\n", encoding="utf-8")
    assert make(bare_tree).returncode != 0
    assert (bare_tree / "used").read_text(encoding="utf-8") == "python3 -m venv .venv\n"
    assert not stamp.exists()
