"""The codebook: vote categories, evidence states, labels, and which label each state supports."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NoReturn

import numpy as np

from evidial_bayes.data.errors import InputError, suggest

#: Outcomes of a prediction that are no label; a codebook may not use them as one.
NOT_ANSWERED = ("abstain", "failed")


@dataclass(frozen=True)
class Instrument:
    """The questionnaire behind a source's native scores.

    Parameters
    ----------
    name
        Instrument, for example ``PHQ-8``.
    window_days
        Length of its target window in days.
    language
        Language of the source's texts (ISO 639-1).
    lacks
        Dimensions that the instrument has no item for.
    """

    name: str
    window_days: int
    language: str
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Codebook:
    """What judges may answer, what can be true of a cell, and which label that supports.

    Nothing else in the package knows a state's name: other fields of application are other codebooks.

    Parameters
    ----------
    name
        Name of the codebook, for reports.
    states
        Evidence states of a cell, in the order of the dim ``state``.
    categories
        Vote categories, in the order of the dim ``category``.
    labels
        Labels that a native label or a prediction may take; empty when no prediction is to be audited.
    supports
        For every state the label that its evidence supports, or ``None``.
    sufficient
        States whose evidence settles the question. A correct label under a sufficient state that supports
        another label is *opposed*; any other correct label that its state does not support is *unsupported*.
    reads
        For every state the category that a faultless judge casts.
    dimensions
        Dimension → dimension group. Empty: any dimension is allowed and is its own group.
    instruments
        Source → `Instrument`. Sources that are not named here are not restricted.
    descriptions
        State → one sentence for reports.

    Notes
    -----
    Build it with `Codebook.from_mapping`, which checks it; the constructor trusts its arguments.
    """

    name: str
    states: tuple[str, ...]
    categories: tuple[str, ...]
    labels: tuple[str, ...]
    supports: Mapping[str, str | None] = field(hash=False)
    sufficient: tuple[str, ...]
    reads: Mapping[str, str] = field(hash=False)
    dimensions: Mapping[str, str] = field(hash=False)
    instruments: Mapping[str, Instrument] = field(hash=False)
    descriptions: Mapping[str, str] = field(hash=False)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], file: str = "codebook") -> "Codebook":
        """Build a checked codebook from a YAML mapping whose keys are the fields.

        Parameters
        ----------
        mapping
            ``name`` and ``states`` are required, with ``labels`` also ``supports`` and ``sufficient``.
            ``categories`` defaults to the states, ``reads`` to the category of the state's own name,
            everything else to empty.
        file
            Name to put in front of error messages.

        Returns
        -------
        Codebook

        Raises
        ------
        InputError
            Names the file, the key, the value and what is allowed.
        """
        source = _Source(mapping, file)
        states = source.names("states", mapping["states"], minimum=1)
        categories = source.names("categories", mapping.get("categories", states), minimum=2)
        labels = source.names("labels", mapping.get("labels"))
        for label in labels:
            if label in NOT_ANSWERED:
                source.fail("labels", f"'{label}' is reserved for predictions without a label; choose another name")
        supports = source.supports(states, labels)
        if labels and not source.has("sufficient"):
            source.fail("sufficient", "missing: list the states whose evidence settles the question, or []")
        sufficient = source.names("sufficient", mapping.get("sufficient"))
        source.known("sufficient", sufficient, states, "state")
        for state in sufficient:
            if labels and supports[state] is None:
                source.fail("sufficient", f"state '{state}' supports no label, so its evidence cannot settle one")
        dimensions = source.texts("dimensions")
        descriptions = source.texts("descriptions")
        source.known("descriptions", descriptions, states, "state")
        return cls(
            name=source.text("name", mapping["name"]),
            states=states,
            categories=categories,
            labels=labels,
            supports=supports,
            sufficient=sufficient,
            reads=source.reads(states, categories),
            dimensions=dimensions,
            instruments=source.instruments(dimensions),
            descriptions=descriptions,
        )

    @cached_property
    def reading(self) -> np.ndarray:
        """Category that a faultless judge casts: int64 [state], positions in ``categories``."""
        return np.array([self.categories.index(self.reads[state]) for state in self.states], dtype=np.int64)

    @cached_property
    def support(self) -> np.ndarray:
        """What evidence says to a label: int8 [label, state], 0 supported, 1 unsupported, 2 opposed."""
        table = np.ones((len(self.labels), len(self.states)), dtype=np.int8)
        for s, state in enumerate(self.states):
            for n, label in enumerate(self.labels):
                if self.supports[state] == label:
                    table[n, s] = 0
                elif state in self.sufficient:
                    table[n, s] = 2
        return table


@dataclass(frozen=True)
class _Source:
    """The YAML mapping under check, with the file name that its errors carry."""

    mapping: Mapping[str, object]
    file: str

    def __post_init__(self) -> None:
        if not isinstance(self.mapping, Mapping):
            raise InputError(f"{self.file}: a codebook is a mapping with the keys {_listed(_KEYS)}.")
        for key in self.mapping:
            if key not in _KEYS:
                raise InputError(f"{self.file}: unknown key `{key}`; allowed: {_listed(_KEYS)}.{suggest(key, _KEYS)}")
        for key in ("name", "states"):
            if not self.has(key):
                raise InputError(f"{self.file}: key `{key}` is missing.")

    def has(self, key: str) -> bool:
        """Whether the key is there with a value; a key without one counts as left out."""
        return self.mapping.get(key) is not None

    def fail(self, key: str, message: str, hint: str = "") -> NoReturn:
        raise InputError(f"{self.file}, key `{key}`: {message}.{hint}")

    def text(self, key: str, value: object) -> str:
        """One name; YAML's own reading of ``yes`` or ``1`` as a boolean or number is refused."""
        if not isinstance(value, str):
            hint = f" YAML reads it as {type(value).__name__}: put the name in quotes."
            self.fail(key, f"{value!r} is no text", hint if isinstance(value, bool | int | float) else "")
        if not value.strip():
            self.fail(key, "an empty name is not allowed")
        if value != value.strip():
            self.fail(key, f"'{value}' has blanks around it; remove them")
        return value

    def names(self, key: str, given: object, minimum: int = 0) -> tuple[str, ...]:
        """Read a list of distinct names."""
        given = [] if given is None else given
        if isinstance(given, str) or not isinstance(given, Sequence):
            self.fail(key, f"{given!r} is no list; write [a, b, ...]")
        names = tuple(self.text(key, value) for value in given)
        for name in names:
            if names.count(name) > 1:
                self.fail(key, f"'{name}' is listed {names.count(name)} times; names must differ")
        if len(names) < minimum:
            verb = "is" if minimum == 1 else "are"
            self.fail(key, f"{len(names)} given ({_listed(names) or 'none'}); at least {minimum} {verb} needed")
        return names

    def table(self, key: str) -> dict[str, object]:
        """Read the entries of a mapping, none when the key is left out."""
        given = self.mapping.get(key)
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            self.fail(key, f"{given!r} is no mapping; write one `name: value` per line")
        return {self.text(key, name): value for name, value in given.items()}

    def texts(self, key: str) -> dict[str, str]:
        return {name: self.text(key, value) for name, value in self.table(key).items()}

    def known(self, key: str, names: Iterable[str], allowed: Collection[str], what: str) -> None:
        """Refuse the first name that is not allowed."""
        for name in names:
            if name not in allowed:
                listed = _listed(allowed) or "none"
                self.fail(key, f"'{name}' is no {what} of this codebook; allowed: {listed}", suggest(name, allowed))

    def supports(self, states: Sequence[str], labels: Sequence[str]) -> dict[str, str | None]:
        given = self.table("supports")
        self.known("supports", given, states, "state")
        for state in states:
            if labels and state not in given:
                self.fail("supports", f"state '{state}' is missing; give it a label, or null when it supports none")
        read = {state: None if label is None else self.text("supports", label) for state, label in given.items()}
        self.known("supports", (label for label in read.values() if label is not None), labels, "label")
        return {state: read.get(state) for state in states}

    def reads(self, states: Sequence[str], categories: Sequence[str]) -> dict[str, str]:
        given = self.texts("reads")
        self.known("reads", given, states, "state")
        self.known("reads", given.values(), categories, "category")
        for state in states:
            if state not in given and state not in categories:
                self.fail(
                    "reads",
                    f"no category is called '{state}'; name the one that a faultless judge casts for it",
                )
        return {state: given.get(state, state) for state in states}

    def instruments(self, dimensions: Mapping[str, str]) -> dict[str, Instrument]:
        keys = tuple(f.name for f in fields(Instrument))
        built = {}
        for source, given in self.table("instruments").items():
            key = f"instruments.{source}"
            if not isinstance(given, Mapping):
                self.fail(key, f"{given!r} is no mapping with the keys {_listed(keys)}")
            for name in given:
                if name not in keys:
                    self.fail(key, f"unknown key `{name}`; allowed: {_listed(keys)}", suggest(name, keys))
            for name in ("name", "window_days", "language"):
                if given.get(name) is None:
                    self.fail(key, f"`{name}` is missing")
            days = given["window_days"]
            if isinstance(days, bool) or not isinstance(days, int) or days < 1:
                self.fail(f"{key}.window_days", f"{days!r} is no positive whole number of days")
            lacks = self.names(f"{key}.lacks", given.get("lacks"))
            if dimensions:
                self.known(f"{key}.lacks", lacks, dimensions, "dimension")
            name = self.text(f"{key}.name", given["name"])
            language = self.text(f"{key}.language", given["language"])
            built[source] = Instrument(name=name, window_days=days, language=language, lacks=lacks)
        return built


_KEYS = tuple(f.name for f in fields(Codebook))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
