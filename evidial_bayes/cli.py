"""The command line: ``evidial <command> [overrides]``, each command a Hydra app with its own root config."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

import evidial_bayes
from evidial_bayes.config import conf_dir
from evidial_bayes.data.errors import InputError, suggest

PROGRAM = "evidial"
REFUSED = "evidial_bayes.refused"  # logger that writes to the run's log file alone
USAGE = 2  # exit code of whatever the user can put right
INTERRUPTED = 130
EXPECTED = (InputError, HydraException, OmegaConfBaseException)
COMPLETION_FLAGS = ("-sc", "--shell-completion")

OVERVIEW = """evidial: audit of label predictions against a posterior over evidence states

  {commands}

  evidial COMMAND --help           groups and settings of a command, in words
  evidial COMMAND [key=value ...]  run it with some settings changed
  evidial --version                version

Tab completion of commands, groups, settings and files:
  bash  eval "$(evidial -sc install=bash)"
  zsh   autoload -Uz bashcompinit && bashcompinit && eval "$(evidial -sc install=bash)"
  fish  evidial -sc install=fish | source

States describe what the text carries, never a person's health; nothing here is a diagnosis.
"""


@dataclass(frozen=True)
class Command:
    """A command: what it does, in a line, and the task that Hydra runs."""

    summary: str
    task: Callable[[DictConfig], None]


def audit(config: DictConfig) -> None:
    """Task of ``evidial audit``."""
    _run("audit", config)


def fit(config: DictConfig) -> None:
    """Task of ``evidial fit``."""
    _run("fit", config)


def simulate(config: DictConfig) -> None:
    """Task of ``evidial simulate``."""
    _run("simulate", config)


COMMANDS: Mapping[str, Command] = {
    "audit": Command("fit the votes, or take up a fit, and audit predictions against the posterior", audit),
    "fit": Command("fit the votes and write the reference, without predictions", fit),
    "simulate": Command("draw a panel with known truth and write it as the three tables", simulate),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; what the user can put right is one message on standard error, without a traceback.

    Parameters
    ----------
    argv
        Words after the program's name; the process's own by default.

    Returns
    -------
    int
        0 when all went well, 2 when the input or the command line has to change, 130 when interrupted.
        Anything unexpected is raised, so that Python prints its traceback and exits with 1.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _own_logging():
            return _dispatch(words)
    except EXPECTED as error:
        if words and words[0] in COMPLETION_FLAGS:
            return USAGE  # half a line that does not parse yet: no completions, no noise
        command = words[0] if words and words[0] in COMMANDS else "audit"
        return _refuse(explain(error, command, words[1:]))
    except KeyboardInterrupt:
        return _refuse("interrupted; files written so far are whole.", INTERRUPTED)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _dispatch(words: list[str]) -> int:
    first = words[0] if words else "--help"
    if first in COMPLETION_FLAGS:
        return _complete(words)
    if first in ("--help", "-h"):
        width = max(map(len, COMMANDS)) + 2
        lines = [f"{name:<{width}}{command.summary}" for name, command in COMMANDS.items()]
        print(OVERVIEW.format(commands="\n  ".join(lines)), end="")
        return 0
    if "--version" in words:
        print(f"{PROGRAM} {evidial_bayes.__version__}")
        return 0
    if first not in COMMANDS:
        if first.startswith("-") or "=" in first:
            return _refuse(f"a command comes first, as in `{PROGRAM} audit {first}`; commands: {', '.join(COMMANDS)}.")
        return _refuse(f"there is no command '{first}'; commands: {', '.join(COMMANDS)}.{suggest(first, COMMANDS)}")
    _hydra(first, words[1:])
    return 0


def _hydra(command: str, words: Sequence[str]) -> None:
    """Hand the rest of the line to Hydra."""
    app = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=command)(COMMANDS[command].task)
    with _process(words):
        app()


def _run(command: str, config: DictConfig) -> None:
    """Run the pipeline within Hydra's job, in the run's own folder."""
    from evidial_bayes import pipeline  # imports JAX, which help and tab completion need not wait for

    settings = HydraConfig.get()
    try:
        pipeline.COMMANDS[command](config, Path(settings.runtime.output_dir))
    except (InputError, OmegaConfBaseException) as error:
        message = explain(error, command, ())
        logging.getLogger(REFUSED).error(message)
        if settings.mode == RunMode.MULTIRUN:
            raise  # Hydra adds which of the runs it was
        raise SystemExit(_refuse(message)) from None


def _complete(words: Sequence[str]) -> int:
    """Tab completion: of commands here, of everything after a command by Hydra.

    Hydra's shell functions call ``evidial -sc query=SHELL`` with the line in ``COMP_LINE``; Hydra itself
    knows no commands, so it gets a line without one.
    """
    line = os.environ.get("COMP_LINE", "")
    if not any(word.startswith("query=") for word in words):  # install or uninstall
        _hydra("audit", words)
        return 0
    typed = line.split()[1:]
    if len(typed) == 0 or (len(typed) == 1 and not line[-1].isspace()):
        start = typed[0] if typed else ""
        separator = "\n" if "query=fish" in words else " "
        print(separator.join(name for name in COMMANDS if name.startswith(start)))
        return 0
    command, rest = typed[0], line.lstrip().split(maxsplit=2)[2:]
    if command in COMMANDS:
        with _environment(COMP_LINE=" ".join([PROGRAM, *rest]) + ("" if rest else " ")):
            _hydra(command, words)
    return 0


def explain(error: Exception, command: str, overrides: Sequence[str]) -> str:
    """Say what Hydra, OmegaConf or the package found wrong, in terms of what the user wrote.

    Parameters
    ----------
    error
        What was raised.
    command
        Command whose settings are searched for similar names.
    overrides
        The words that followed the command.
    """
    text, cause = str(error).strip(), error.__cause__
    if isinstance(error, InputError):
        return text
    if isinstance(error, OverrideParseException):
        reason = text.splitlines()[0].rstrip(".")
        return f"cannot read '{error.override}' ({reason}); write key=value, and quote special characters."
    if isinstance(error, MissingConfigException) and error.options:
        group, _, option = (error.missing_cfg_file or "").rpartition("/")
        options = ", ".join(error.options)
        return f"{group}={option}: no such option; {group} is one of {options}.{suggest(option, error.options)}"
    if isinstance(error, MissingMandatoryValue):
        key = text.splitlines()[0].rpartition(" ")[2]
        return f"{key} is missing: give {key}=…"
    unknown = re.match(r"(?:In '[^']*': )?Could not override '([^']+)'", text)
    if unknown:
        return f"there is no setting '{unknown[1]}'.{_similar_key(unknown[1], _known_keys(command, overrides))}"
    if isinstance(cause, OmegaConfBaseException):
        override = re.match(r"Error merging override (.*)", text)
        place = override[1] if override else getattr(cause, "full_key", None) or "configuration"
        return f"{place}: {str(cause).splitlines()[0].rstrip('.')}."
    return text or type(error).__name__


def _similar_key(key: str, known: Sequence[str]) -> str:
    """Hint at a key spelled alike, or at one whose last part is the whole of what was written."""
    same_end = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    near = suggest(key, same_end or known)
    return near or (f" Did you mean '{same_end[0]}'?" if same_end else "")


def _known_keys(command: str, overrides: Sequence[str]) -> list[str]:
    """Every key of a command's configuration, with dots, under those choices of groups that can be made."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        chosen = [word for word in overrides if re.fullmatch(r"\w+=\w+", word)]
        try:
            config = compose(command, chosen)
        except (HydraException, OmegaConfBaseException):
            config = compose(command)
    return list(_keys(OmegaConf.to_container(config, resolve=False), ""))


def _keys(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield f"{prefix}{name}"
            yield from _keys(value, f"{prefix}{name}.")


def _refuse(message: str, code: int = USAGE) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


@contextmanager
def _process(words: Sequence[str]) -> Iterator[None]:
    """Hydra reads the process's arguments, and only with this variable lets exceptions through to `main`."""
    before, sys.argv = sys.argv, [PROGRAM, *words]
    try:
        with _environment(HYDRA_FULL_ERROR="1"):
            yield
    finally:
        sys.argv = before


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _own_logging() -> Iterator[None]:
    """Take Hydra's log handlers back afterwards: `main` may be one call among others in this process."""
    root, refused = logging.getLogger(), logging.getLogger(REFUSED)
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        for logger in (root, refused):
            for handler in [h for h in logger.handlers if h not in handlers]:
                logger.removeHandler(handler)
                handler.close()
        root.handlers, root.level = handlers, level


if __name__ == "__main__":
    sys.exit(main())
