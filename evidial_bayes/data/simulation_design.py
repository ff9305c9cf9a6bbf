"""Settings and codebook → design: a simulated panel with every size, share and name fixed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.simulation_checks import (
    check_complete,
    check_count,
    check_distribution,
    check_finite,
    check_names,
    check_positive,
    check_share,
    refusal,
)
from evidial_bayes.data.simulation_settings import SimulationSettings

# Shapes that the source paper publishes (arXiv 2610.27541, sections 3 and 4); its data cannot be
# redistributed.
PAPER_SOURCES = {"PDCH": 72.0, "EDAIC": 271.0}
PAPER_PARTICIPANTS, PAPER_AUDIT_PARTICIPANTS, PAPER_AUDIT_CELLS = 343, 76, 87
PAPER_STATES = ("absent", "partial", "conflicting", "sufficient_negative", "sufficient_positive")
PAPER_SHARES = {"PDCH": (0.10, 0.17, 0.015, 0.03, 0.685), "EDAIC": (0.515, 0.455, 0.012, 0.006, 0.012)}
# Share of a source's cells that each judge replies on: 5,240 valid votes of 2,744 × 3, uneven by language.
PAPER_COVERAGE = {"PDCH": (0.998, 0.97, 0.93), "EDAIC": (0.998, 0.486, 0.216)}
# P(native score = 0, 1, 2, 3): means 0.77, 0.91 and 1.65 over absent, partial and sufficient; 79 % positive
# labels among the sufficient-positive cells, about 51 % among the others.
PAPER_SCORES = {
    "absent": (0.52, 0.25, 0.17, 0.06),
    "partial": (0.46, 0.27, 0.17, 0.10),
    "conflicting": (0.48, 0.26, 0.17, 0.09),
    "sufficient_negative": (0.80, 0.15, 0.04, 0.01),
    "sufficient_positive": (0.214, 0.20, 0.308, 0.278),
}
NEUTRAL_COVERAGE = 0.9
NEUTRAL_SOURCES = {"source_1": 1.0, "source_2": 1.0}
NEUTRAL_DIMENSIONS = tuple(f"dimension_{i + 1}" for i in range(8))


@dataclass(frozen=True, eq=False)
class SimulationDesign:
    """A panel before anything is drawn.

    Parameters
    ----------
    participants
        Source → number of participants.
    dimensions
        Source → dimensions of its cells.
    coverage
        Share of cells replied on: float [source, judge].
    judge_families
        Family of each judge.
    shares
        Expected state shares of each source: float [source, state].
    groups
        Dimension groups.
    group_weights
        Share of a source's cells in each group: float [source, dimension_group].
    group_shifts
        Given shifts of the states' log-odds: float [dimension_group, state]; 0 where they are random.
    group_sd
        Standard deviation of random shifts; 0 where they are given.
    scores
        Probability of each native score: float [state, score]; ``None`` where the panel has no scores.
    n_held_out
        Participants in the split ``held_out``.
    audit_participants, audit_cells
        Numbers of development participants and cells that systems predict on.
    """

    participants: Mapping[str, int]
    dimensions: Mapping[str, tuple[str, ...]]
    coverage: np.ndarray
    judge_families: tuple[str, ...]
    shares: np.ndarray
    groups: tuple[str, ...]
    group_weights: np.ndarray
    group_shifts: np.ndarray
    group_sd: float
    scores: np.ndarray | None
    n_held_out: int
    audit_participants: int
    audit_cells: int


def plan(settings: SimulationSettings, codebook: Codebook) -> SimulationDesign:
    """Fix everything that settings leave to the codebook, and check every name against it.

    Parameters
    ----------
    settings
        The user's settings.
    codebook
        States, labels, dimensions and instruments of the panel.

    Returns
    -------
    SimulationDesign
        Sizes, shares and names.

    Raises
    ------
    InputError
        For a source, dimension or state that the codebook does not know, shares that do not sum to one,
        scores where labels are not positive and negative, or more audited cells than the development
        participants have.
    """
    sources = _sources(settings, codebook)
    check_count("n_participants", settings.n_participants, max(2, len(sources)))
    paper_states = set(codebook.states) == set(PAPER_STATES)
    dimensions = _dimensions(settings, codebook, sources)
    n_held_out = min(round(settings.n_participants * settings.held_out_share), settings.n_participants - 1)
    development = settings.n_participants - n_held_out
    fewest = min(map(len, dimensions.values()))
    audit_participants, audit_cells = _audit_sizes(settings, development, fewest)
    group = {d: codebook.dimensions.get(d, d) for row in dimensions.values() for d in row}
    groups = tuple(dict.fromkeys(group.values()))
    counts = np.array([[sum(group[d] == g for d in row) for g in groups] for row in dimensions.values()])
    families = settings.judge_families or [f"family_{j + 1}" for j in range(settings.n_judges)]
    return SimulationDesign(
        participants=_allocate(settings.n_participants, sources),
        dimensions=dimensions,
        coverage=_coverage(settings, sources),
        judge_families=tuple(families),
        shares=_shares(settings, codebook, sources, paper_states=paper_states),
        groups=groups,
        group_weights=counts / counts.sum(1, keepdims=True),
        group_shifts=_group_shifts(settings, codebook, groups),
        group_sd=0.0 if isinstance(settings.group_effects, Mapping) else settings.group_effects,
        scores=_scores(settings, codebook, by_default=paper_states and set(sources) <= set(PAPER_SOURCES)),
        n_held_out=n_held_out,
        audit_participants=audit_participants,
        audit_cells=audit_cells,
    )


def _sources(settings: SimulationSettings, codebook: Codebook) -> dict[str, float]:
    known = list(codebook.instruments)
    if settings.sources is None:
        if set(PAPER_SOURCES) <= set(known):
            return PAPER_SOURCES
        return dict.fromkeys(known, 1.0) or NEUTRAL_SOURCES
    if not isinstance(settings.sources, Mapping) or not settings.sources:
        raise refusal("sources", settings.sources, "a mapping source → weight")
    if known:
        check_names("sources", settings.sources, known, "sources")
    return {source: check_positive(f"sources.{source}", weight) for source, weight in settings.sources.items()}


def _allocate(n_participants: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers in proportion to the weights, by largest remainder, at least one per source."""
    exact = n_participants * np.array(list(weights.values())) / sum(weights.values())
    number = np.floor(exact).astype(int)
    number[np.argsort(number - exact, kind="stable")[: n_participants - number.sum()]] += 1
    for empty in np.flatnonzero(number == 0):
        number[number.argmax()] -= 1
        number[empty] = 1
    return dict(zip(weights, number.tolist(), strict=True))


def _dimensions(
    settings: SimulationSettings, codebook: Codebook, sources: Mapping[str, float]
) -> dict[str, tuple[str, ...]]:
    given = settings.dimensions
    if given is None:
        given = tuple(codebook.dimensions) or NEUTRAL_DIMENSIONS
    if isinstance(given, str) or not given or len(set(given)) < len(given):
        raise refusal("dimensions", given, "a list of different dimensions")
    if codebook.dimensions:
        check_names("dimensions", given, list(codebook.dimensions), "dimensions")
    lacks = {name: instrument.lacks for name, instrument in codebook.instruments.items()}
    by_source = {source: tuple(d for d in given if d not in lacks.get(source, ())) for source in sources}
    for source, left in by_source.items():
        if not left:
            raise refusal("dimensions", list(given), f"at least one that {source} does not lack")
    return by_source


def _coverage(settings: SimulationSettings, sources: Mapping[str, float]) -> np.ndarray:
    given = settings.coverage
    if given is None:
        given = {source: PAPER_COVERAGE.get(source, NEUTRAL_COVERAGE) for source in sources}
    if not isinstance(given, Mapping):
        given = dict.fromkeys(sources, check_share("coverage", given))
    check_complete("coverage", given, list(sources))
    table = []
    for source in sources:
        row = given[source]
        rates = row if isinstance(row, Sequence) and len(row) else (row,)
        checked = [check_share(f"coverage.{source}", rate) for rate in rates]
        table.append([checked[j % len(checked)] for j in range(settings.n_judges)])
    return np.array(table)


def _shares(
    settings: SimulationSettings, codebook: Codebook, sources: Mapping[str, float], *, paper_states: bool
) -> np.ndarray:
    given = settings.shares
    if given is None:
        equal = dict.fromkeys(codebook.states, 1 / len(codebook.states))
        paper = {source: dict(zip(PAPER_STATES, row, strict=True)) for source, row in PAPER_SHARES.items()}
        given = {source: paper.get(source, equal) if paper_states else equal for source in sources}
    check_complete("shares", given, list(sources))
    for source in sources:
        if not isinstance(given[source], Mapping):
            raise refusal(f"shares.{source}", given[source], "a mapping state → share")
        check_names(f"shares.{source}", given[source], codebook.states, "states")
        check_distribution(f"shares.{source}", given[source])
    return np.array([[given[source].get(state, 0.0) for state in codebook.states] for source in sources])


def _group_shifts(settings: SimulationSettings, codebook: Codebook, groups: tuple[str, ...]) -> np.ndarray:
    given = settings.group_effects
    if not isinstance(given, Mapping):
        return np.zeros((len(groups), len(codebook.states)))
    check_names("group_effects", given, groups, "dimension groups")
    for group, row in given.items():
        if not isinstance(row, Mapping):
            raise refusal(f"group_effects.{group}", row, "a mapping state → shift of the log-odds")
        check_names(f"group_effects.{group}", row, codebook.states, "states")
        for state, shift in row.items():
            check_finite(f"group_effects.{group}.{state}", shift)
    return np.array([[given.get(g, {}).get(s, 0.0) for s in codebook.states] for g in groups])


def _scores(settings: SimulationSettings, codebook: Codebook, *, by_default: bool) -> np.ndarray | None:
    binary = set(codebook.labels) == {"positive", "negative"}
    given = settings.scores
    if given is None:
        given = PAPER_SCORES if binary and by_default else {}
    if not given:
        return None
    if not binary:
        raise refusal("scores", given, "none ({}), as this codebook's labels are not positive and negative")
    check_complete("scores", given, codebook.states)
    rows = [check_distribution(f"scores.{state}", given[state]) for state in codebook.states]
    width = max(map(len, rows))
    return np.array([[*row, *[0.0] * (width - len(row))] for row in rows])


def _audit_sizes(settings: SimulationSettings, development: int, fewest: int) -> tuple[int, int]:
    """Audited participants and cells; ``fewest`` is the smallest number of cells that a participant has."""
    ratio = settings.n_participants / PAPER_PARTICIPANTS
    participants = settings.audit_participants
    if participants is None:
        participants = min(max(1, round(PAPER_AUDIT_PARTICIPANTS * ratio)), development)
    check_count("audit_participants", participants, 1, development)
    cells = settings.audit_cells
    if cells is None:
        cells = min(max(participants, round(PAPER_AUDIT_CELLS * ratio)), participants * fewest)
    check_count("audit_cells", cells, participants, participants * fewest)
    return participants, cells
