"""The configuration: its schema, and the one gate through which YAML builds objects.

Nothing heavy is imported here, so that ``--help`` and tab completion answer at once.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, TypeAliasType, Union, cast, get_args, get_origin

import numpy as np
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from evidial_bayes.data.errors import InputError, suggest

TARGET = "_target_"
DISTRIBUTIONS = "numpyro.distributions"
ALLOWED = ("evidial_bayes", DISTRIBUTIONS)  # packages whose classes YAML may build


@dataclass
class Gate:
    """Which judges are let in."""

    min_valid_share: float = MISSING


@dataclass
class Job:
    """What every command has; groups that build objects are typed by the constructors they name."""

    seed: int = MISSING
    progress: bool = MISSING
    data: Any = MISSING
    codebook: Any = MISSING


@dataclass
class Simulate(Job):
    """Schema of ``evidial simulate``."""


@dataclass
class Fit(Job):
    """Schema of ``evidial fit``."""

    gate: Gate = field(default_factory=Gate)
    prior: Any = MISSING
    quadrature: Any = MISSING
    model: Any = MISSING
    inference: Any = MISSING
    reference: Any = MISSING
    uncertainty: Any = MISSING
    checks: Any = MISSING


@dataclass
class Audit(Fit):
    """Schema of ``evidial audit``."""


@dataclass(frozen=True)
class ReferenceSettings:
    """How the reference is made of a fit.

    Parameters
    ----------
    source
        Folder of an earlier run whose fit is taken up (``reference.from``), or ``None`` to fit.
    draws
        Number of posterior draws to keep, evenly thinned; ``None`` keeps all.
    max_entropy
        Entropy in nats above which a cell counts as unresolved; ``None``: no threshold.
    calibration
        What maps the posterior to probabilities that are true of the known cells, a
        `evidial_bayes.reference.calibration.Calibration`; ``None``: the posterior is taken as it is.

    Raises
    ------
    InputError
        A number out of range.
    """

    source: str | None = None
    draws: int | None = None
    max_entropy: float | None = None
    calibration: Any = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.draws is not None and self.draws < 1:
            raise InputError(f"reference.draws={self.draws}: allowed: whole numbers from 1, or null for all.")
        if self.max_entropy is not None and not self.max_entropy >= 0:
            raise InputError(f"reference.max_entropy={self.max_entropy}: allowed: numbers from 0, or null.")


def register() -> None:
    """Put the schemas where the root configurations find them (``defaults: audit_schema`` and so on)."""
    store = ConfigStore.instance()
    for schema in (Simulate, Fit, Audit):
        store.store(name=f"{schema.__name__.lower()}_schema", node=schema)


register()


def conf_dir() -> Path:
    """Folder of the YAML files: within an installed package, else the one at the top of the repository."""
    package = Path(__file__).resolve().parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def reference_settings(config: DictConfig) -> ReferenceSettings:
    """Read the group ``reference``, whose key ``from`` cannot be a name in Python; errors as `build`."""
    written = _plain(config, resolve=False)["reference"]
    node = {"from": None, **_plain(config)["reference"]}
    node = {key: _build(value, *_origin(written.get(key), f"reference.{key}")) for key, value in node.items()}
    given = {"source" if key == "from" else key: value for key, value in node.items()}
    paths = {name: f"reference.{key}" for name, key in zip(given, node, strict=True)}
    return _call(ReferenceSettings, given, paths, "reference")


def build(config: DictConfig, key: str) -> Any:
    """Build the object that a key of the configuration describes: the only way from YAML to an object.

    A mapping with ``_target_`` is a constructor call, nested ones included. Only classes of ``evidial_bayes``
    and distributions of NumPyro may be named, so a file from elsewhere cannot run code of its choosing.

    Parameters
    ----------
    config
        The whole configuration; interpolations such as ``${prior.sigma}`` are followed.
    key
        Top-level key to build.

    Returns
    -------
    object
        What the constructor returns; a mapping without ``_target_`` comes back as a dictionary.

    Raises
    ------
    InputError
        A class outside the two packages, an unknown or missing argument, or a value that the constructor
        refuses. The message names the key that was written, also where an interpolation leads to it.
    """
    written = _plain(config, resolve=False)
    return _build(_plain(config)[key], *_origin(written[key], key))


def _plain(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    return cast("dict[str, Any]", OmegaConf.to_container(config, resolve=resolve))


def _build(value: object, written: object, path: str) -> Any:
    """Build a resolved value; ``written`` is the same place before interpolation, ``path`` its key."""
    if value == "???":
        raise InputError(f"{path} is missing: give {path}=…")
    if isinstance(value, list):
        parts = written if isinstance(written, list) else value
        places = [_origin(part, f"{path}[{i}]") for i, part in enumerate(parts)]
        return [_build(v, *place) for v, place in zip(value, places, strict=True)]
    if not isinstance(value, dict):
        return value
    named = written if isinstance(written, dict) else value
    origins = {name: _origin(named[name], f"{path}.{name}") for name in value if name != TARGET}
    built = {name: _build(value[name], *origin) for name, origin in origins.items()}
    if TARGET not in value:
        return built
    paths = {name: origin[1] for name, origin in origins.items()}
    return _call(_locate(str(value[TARGET]), f"{path}.{TARGET}"), built, paths, path)


def _origin(written: object, path: str) -> tuple[object, str]:
    """Where a value was written: behind an interpolation, the key that it points to."""
    if isinstance(written, str) and written.startswith("${") and written.count("$") == 1:
        inner = written[2:-1]
        if written.endswith("}") and ":" not in inner and not inner.startswith("."):
            return None, inner
    return written, path


def _locate(name: str, path: str) -> Callable[..., Any]:
    """Class at a dotted name, if it may be built."""
    package = next((p for p in ALLOWED if name.startswith(f"{p}.")), None)
    if package is None:
        raise InputError(f"{path}: '{name}' may not be built; allowed: classes of {' and '.join(ALLOWED)}.")
    module_name, _, attribute = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or "-"):
            raise  # a dependency of an existing module is missing: not the user's spelling
        raise InputError(f"{path}: there is no module '{module_name}' to take '{attribute}' from.") from error
    # Some NumPyro distributions (Bernoulli, Categorical) are functions that choose a parameterisation.
    kinds = (type, FunctionType) if package == DISTRIBUTIONS else (type,)
    own: dict[str, Callable[..., Any]] = {
        k: v for k, v in vars(module).items() if isinstance(v, kinds) and v.__module__.startswith(package)
    }
    if attribute.startswith("_") or attribute not in own:
        raise InputError(f"{path}: '{module_name}' has no class '{attribute}'.{suggest(attribute, own)}")
    return own[attribute]


def _call(target: Callable[..., Any], given: Mapping[str, object], paths: Mapping[str, str], path: str) -> Any:
    """Call a constructor; what is wrong with its arguments becomes a sentence that names the key."""
    name = target.__name__
    parameters = inspect.signature(target).parameters
    for argument in given:
        if argument not in parameters:
            offered = [p for p in parameters if p != "validate_args"]
            allowed = ", ".join(offered) or "none"
            near = suggest(argument, offered)
            raise InputError(f"{paths[argument]}: {name} has no argument '{argument}'; allowed: {allowed}.{near}")
    for argument, parameter in parameters.items():
        if parameter.default is parameter.empty and argument not in given:
            raise InputError(f"{path}.{argument} is missing: {name} needs it.")
    try:
        if target.__module__.startswith(DISTRIBUTIONS):
            numbers = {k: _number(v, paths[k]) for k, v in given.items()}
            target(**{**numbers, "validate_args": True})  # checked once here, never again in traced code
            return target(**numbers)
        return target(**{k: _checked(v, parameters[k].annotation, paths[k]) for k, v in given.items()})
    except InputError as error:
        if str(error).startswith((path, *paths.values())):
            raise
        raise InputError(f"{path}: {error}") from error
    except (TypeError, ValueError) as error:
        refused = next((a for a in given if f"invalid {a} parameter" in str(error)), None)
        if refused is None:
            raise InputError(f"{path}: {str(error).rstrip('.')}.") from error
        allowed = getattr(target, "arg_constraints", {}).get(refused, "otherwise")
        raise InputError(f"{paths[refused]}={given[refused]}: has to be {allowed}.") from error


def _number(value: object, path: str) -> object:
    """Parameter of a distribution as float, since an integer would make JAX compile a second program."""
    if isinstance(value, str):
        raise InputError(f"{path}={value!r}: allowed are numbers.")
    if isinstance(value, list):
        return np.asarray([_number(v, path) for v in value])
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _checked(value: object, hint: object, path: str) -> object:
    """Value as its annotation wants it: a number, text, choice or object; generic annotations pass."""
    hint = hint.__value__ if isinstance(hint, TypeAliasType) else hint
    if hint is inspect.Parameter.empty or hint is Any:
        return value
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = [c for o in options if get_origin(o) is Literal for c in get_args(o)]
    classes = [o for o in options if isinstance(o, type) and get_origin(o) is None]
    if len(classes) + sum(get_origin(o) is Literal for o in options) < len(options):
        return value
    number = isinstance(value, int) and not isinstance(value, bool)
    if number and float in classes and int not in classes:
        return float(cast("int", value))
    fits = any(isinstance(value, c) for c in classes) and not (isinstance(value, bool) and bool not in classes)
    if fits or (isinstance(value, str) and value in choices):
        return value
    words = {int: "whole numbers", float: "numbers", str: "text", bool: "true and false", NoneType: "null"}
    allowed = ", ".join([*map(str, choices), *(words.get(c, c.__name__) for c in classes)])
    shown = value if value is None or isinstance(value, bool | int | float | str) else type(value).__name__
    raise InputError(f"{path}={shown!r}: allowed: {allowed}.{suggest(str(value), map(str, choices))}")
