"""What a user may set of a simulated panel: sizes, shares, judges and audited systems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from evidial_bayes.data.simulated_systems import PAPER_SYSTEMS, System
from evidial_bayes.data.simulation_checks import check_count, check_keys, check_positive, check_share, refusal


@dataclass(frozen=True)
class SimulationSettings:
    """Sizes and probabilities of a simulated panel; the defaults have the shape of the EviDial panel.

    A setting left at ``None`` follows the codebook (`simulation_design.plan`): the paper's values where the
    codebook knows the paper's sources and states, neutral ones otherwise, so that any codebook can be
    simulated as it is.

    Parameters
    ----------
    n_participants
        Participants, divided between the sources in proportion to ``sources``.
    sources
        Source → weight. Only proportions matter.
    dimensions
        Dimensions that every participant is assessed on, less those that the source's instrument lacks.
    n_judges
        Judges, named ``judge_1`` and so on.
    judge_families
        Family of each judge, in order; by default each judge is a family of its own.
    coverage
        Share of cells that a judge replies on: one number, or source → number, or source → one number per
        judge (repeated in turn where there are more judges).
    invalid_share, empty_share
        Shares of replies that are outside the codebook, and that are empty.
    sigma
        Standard deviation of the cell effect b, on the log-odds scale; 0 makes judges independent given the
        state.
    signal
        Probability that a judge casts the category that the state reads as, at b = 0 and on average over
        emission rows: one number or one per judge. What remains is spread evenly over the other categories.
    emission_concentration
        Pseudo-counts of the Dirichlet from which each judge's emission rows are drawn around ``signal``;
        ``None`` takes the mean itself.
    shares
        Source → state → expected share of the source's cells, over all its dimensions.
    group_effects
        Shifts of the states' log-odds by dimension group: a number is the standard deviation of random,
        centred shifts; a mapping group → state → shift gives them outright (missing ones are 0).
    scores
        State → probabilities of the native scores 0, 1, 2, …; the native label is ``positive`` exactly where
        the score exceeds 0. Empty: no scores, and labels by ``label_match``.
    label_match
        Without scores: probability that the native label is the one that the state supports, the others being
        equally likely. For a state that supports none, all labels are equally likely.
    held_out_share
        Share of participants in the split ``held_out``; the rest are ``development``.
    audit_participants, audit_cells
        Development participants and cells that systems predict on; by default in the paper's proportion, 76
        and 87 per 343 participants.
    systems
        The audited conditions.
    system_agreement
        Probability that a system decides a cell by the chance that all systems share, so that conditions are
        right and wrong on similar cells.

    Raises
    ------
    InputError
        For a value outside its range; the message names the setting, the value and what is allowed.
    """

    n_participants: int = 343
    sources: Mapping[str, float] | None = None
    dimensions: Sequence[str] | None = None
    n_judges: int = 3
    judge_families: Sequence[str] | None = None
    coverage: float | Mapping[str, float | Sequence[float]] | None = None
    invalid_share: float = 0.012
    empty_share: float = 0.008
    sigma: float = 1.0
    signal: float | Sequence[float] = 0.75
    emission_concentration: float | None = 100.0
    shares: Mapping[str, Mapping[str, float]] | None = None
    group_effects: float | Mapping[str, Mapping[str, float]] = 0.25
    scores: Mapping[str, Sequence[float]] | None = None
    label_match: float = 0.75
    held_out_share: float = 0.4694
    audit_participants: int | None = None
    audit_cells: int | None = None
    systems: Sequence[System] = PAPER_SYSTEMS
    system_agreement: float = 0.9

    def __post_init__(self) -> None:
        """Check what can be checked without a codebook."""
        check_count("n_participants", self.n_participants, 2)
        check_count("n_judges", self.n_judges, 2)
        for name in ("invalid_share", "empty_share", "label_match", "held_out_share", "system_agreement"):
            check_share(name, getattr(self, name))
        if self.invalid_share + self.empty_share > 1:
            raise refusal("empty_share", self.empty_share, f"at most {1 - self.invalid_share:g} beside invalid_share")
        if self.held_out_share == 1:
            raise refusal("held_out_share", 1, "below 1, as systems are audited on development participants")
        check_positive("sigma", self.sigma, zero=True)
        if self.emission_concentration is not None:
            check_positive("emission_concentration", self.emission_concentration)
        for value in self.signal if isinstance(self.signal, Sequence) else [self.signal]:
            check_share("signal", value)
        for name in ("signal", "judge_families"):
            values = getattr(self, name)
            if isinstance(values, str) or (isinstance(values, Sequence) and len(values) != self.n_judges):
                raise refusal(name, values, f"one value per judge, {self.n_judges} in all")
        if not isinstance(self.group_effects, Mapping):
            check_positive("group_effects", self.group_effects, zero=True)
        keys = [f"{system.model} {system.method}" for system in self.systems]
        if not keys or len(set(keys)) < len(keys):
            raise refusal("systems", keys, "at least one system, each model × method once")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], file: str = "data") -> "SimulationSettings":
        """Build settings from plain values, as YAML or the command line gives them.

        Parameters
        ----------
        mapping
            Setting → value. ``systems`` is a list of mappings with the fields of `System`; null takes the
            paper's twelve.
        file
            Where the mapping came from, for messages.

        Returns
        -------
        SimulationSettings
            Checked settings.

        Raises
        ------
        InputError
            For an unknown setting, with the nearest known one, or a value outside its range.
        """
        check_keys(file, mapping, [field.name for field in fields(cls)])
        given = dict(mapping)
        systems = given.pop("systems", None)
        if systems is None:
            return cls(**given)  # type: ignore[arg-type]
        if isinstance(systems, str) or not isinstance(systems, Sequence):
            raise refusal("systems", systems, "a list of systems")
        return cls(**given, systems=tuple(System.from_mapping(item, file) for item in systems))  # type: ignore[arg-type]
