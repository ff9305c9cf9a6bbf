"""What the votes can tell of a model's parameters, before any fit.

Sources: Goodman (1974), Exploratory latent structure analysis, Biometrika 61 (local identifiability by rank); Beath
(2017), randomLCA, JSS 81(13).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import comb, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import constrain_fn, unconstrain_fn

from evidial_bayes.data.panel import Panel
from evidial_bayes.data.patterns import Patterns
from evidial_bayes.inference.compilation import precision
from evidial_bayes.inference.verdict import Check, Thresholds
from evidial_bayes.models.base import MeasurementModel

# Most vote patterns that are written out, most sets of voters that are compared, and most numbers in a Jacobian.
MOST_PATTERNS = 4096
MOST_VOTER_SETS = 400
MOST_ENTRIES = 2_000_000
# Singular values below this share of the largest are zero: those of identified models of real panels stay above 1e-6.
RANK_TOLERANCE = 1e-9


def identify(model: MeasurementModel, panel: Panel, thresholds: Thresholds) -> list[Check]:
    """Say what the votes of a panel cannot tell of a model, whatever the algorithm.

    Proper priors give a posterior all the same, in which they decide; flat ones give none.

    Parameters
    ----------
    model
        Measurement model.
    panel
        Votes.
    thresholds
        Where PASS ends.

    Returns
    -------
    list of Check
        ``parameters``: free parameters against degrees of freedom of the vote patterns. ``local_rank``: directions in
        which no vote pattern's probability changes, where the model is small enough to look and has no effect of
        participants. ``constant_judge``; ``few_votes``.
    """
    prepared = model.prepare(panel)
    patterns: Patterns = prepared.data.patterns
    checks = [_parameters(model.n_parameters(prepared.data), _degrees_of_freedom(patterns))]
    if not prepared.effects:
        checks += _local_rank(model, prepared.data)
    return [*checks, _constant_judges(panel), _few_votes(panel, thresholds)]


def _parameters(n_parameters: int, freedom: float) -> Check:
    short = n_parameters > freedom
    count = f"{n_parameters} free parameters on {freedom:.0f} degrees of freedom of the vote patterns"
    advice = (
        f"{count}."
        if not short
        else f"{count}: the votes cannot tell them all, and priors decide. Use fewer states, shared loadings or pooled "
        "emissions, or add judges, categories, covariates or known states."
    )
    return Check("parameters", "REVIEW" if short else "PASS", float(n_parameters), freedom, advice)


def _degrees_of_freedom(patterns: Patterns) -> float:
    """Free cells of the tables of possible votes: one table for each covariate row, known state and set of voters.

    A table of some judges is a margin of the table of more judges and tells nothing new; and a table tells no more
    than it has cells of the panel.
    """
    voted = patterns.votes.sum(-1).astype(int)
    n_categories = patterns.votes.shape[-1]
    tables: dict[tuple[int, int, bool], dict[tuple[int, ...], float]] = {}
    for place, row, known, constructed, count in zip(
        patterns.vote_pattern, patterns.design_row, patterns.known, patterns.constructed, patterns.count, strict=True
    ):
        voters = tables.setdefault((int(row), int(known), bool(constructed)), {})
        key = tuple(voted[place].tolist())
        voters[key] = voters.get(key, 0.0) + count
    return sum(_free(voters, n_categories) for voters in tables.values())


def _free(voters: dict[tuple[int, ...], float], n_categories: int) -> float:
    sets = np.array(list(voters))
    counts = np.array(list(voters.values()))
    if len(sets) <= MOST_VOTER_SETS:
        within = (sets[:, None] <= sets[None]).all(-1) & ~np.eye(len(sets), dtype=bool)
        largest = ~within.any(1)
        # Cells of a margin still count towards what the larger table is estimated from.
        counts = np.array([counts[(sets <= one).all(1)].sum() for one in sets[largest]])
        sets = sets[largest]
    # Replicates of a judge are exchangeable, so n votes have as many outcomes as multisets.
    outcomes = [prod(comb(n_categories + n - 1, n) for n in one) for one in sets.tolist()]
    return float(sum(min(float(n - 1), count) for n, count in zip(outcomes, counts, strict=True)))


def _local_rank(model: MeasurementModel, data: Any) -> list[Check]:
    patterns = _possible(data.patterns)
    with precision("float64"):
        every = jax.tree.map(jnp.asarray, replace(data, patterns=patterns, space="log", tilts=None, tally=None))
        centre = unconstrain_fn(model, (every,), {}, model.initial(every))
        flat, back = ravel_pytree(centre)
        if flat.size * len(patterns.count) > MOST_ENTRIES:
            return []
        # Generic rank: any point but a special one will do, and a shift of the start is not special.
        point = flat + 0.4 * jax.random.normal(jax.random.key(0), flat.shape, flat.dtype)

        def log_probability(z: Array) -> Array:
            return model.log_likelihood(constrain_fn(model, (every,), {}, back(z), return_deterministic=True), every)

        value, jacobian = jax.jit(lambda z: (log_probability(z), jax.jacfwd(log_probability)(z)))(point)
        weighted = np.asarray(jnp.exp(0.5 * value)[:, None] * jacobian)
        names = {name: np.shape(x) for name, x in centre.items()}
    _, size, directions = np.linalg.svd(weighted, full_matrices=True)
    rank = int((size > RANK_TOLERANCE * size[0]).sum())
    missing = model.n_parameters(data) - rank
    if missing <= 0:
        return [Check("local_rank", "PASS", float(rank), float(rank), "Every parameter moves some vote pattern.")]
    share = np.square(directions[rank:]).sum(0)
    ends = np.cumsum([prod(shape) for shape in names.values()])
    by_site = {name: part.sum() for name, part in zip(names, np.split(share, ends[:-1]), strict=True)}
    worst = sorted(by_site, key=lambda name: -by_site[name])[:2]
    blocks = ", ".join(name.removesuffix("_log_ratio").removesuffix("_signed") for name in worst if by_site[name] > 0.1)
    advice = (
        f"{missing} of {model.n_parameters(data)} parameters move no vote pattern's probability, mostly {blocks}: "
        "there the posterior is the prior. Known states would tell (a misreading cannot be seen without them); or "
        "leave the layer out, and sweep its prior."
    )
    return [Check("local_rank", "REVIEW", float(rank), float(model.n_parameters(data)), advice)]


def _possible(patterns: Patterns) -> Patterns:
    """All votes that could be cast, at each covariate row and known state of the panel; those seen, if too many."""
    n_readers, n_categories = patterns.votes.shape[1:]
    voters = np.unique(patterns.votes.sum(-1).astype(int), axis=0)
    cases = np.unique(np.column_stack([patterns.design_row, patterns.known, patterns.constructed]), axis=0)
    total = sum(float(n_categories) ** float(min(one.sum(), 60)) for one in voters) * len(cases)
    if total > MOST_PATTERNS or voters.max(initial=0) > 1:
        return patterns
    votes = np.array([vote for one in voters for vote in _all_votes(one, n_readers, n_categories)])
    place, case = np.divmod(np.arange(len(votes) * len(cases)), len(cases))
    return Patterns(
        votes=votes,
        design=patterns.design,
        vote_pattern=place,
        design_row=cases[case, 0],
        known=cases[case, 1],
        constructed=cases[case, 2].astype(bool),
        unit=np.zeros(len(place), np.int64),
        count=np.ones(len(place)),
    )


def _all_votes(voters: np.ndarray, n_readers: int, n_categories: int) -> Iterator[np.ndarray]:
    who = np.flatnonzero(voters)
    for choice in product(range(n_categories), repeat=len(who)):
        votes = np.zeros((n_readers, n_categories))
        votes[who, list(choice)] = 1.0
        yield votes


def _constant_judges(panel: Panel) -> Check:
    judges = panel.coords["judge"]
    n_categories = len(panel.codebook.categories)
    table = np.zeros((len(judges), n_categories), np.int64)
    np.add.at(table, (panel.vote_judge, panel.vote_category), 1)
    constant = np.flatnonzero(((table > 0).sum(1) == 1) & (table.sum(1) > 1))
    found = ", ".join(f"{judges[j]} (always '{panel.codebook.categories[table[j].argmax()]}')" for j in constant)
    advice = (
        "Every judge uses more than one category."
        if not found
        else f"{found}: a judge who never changes tells states apart no better than none; leave the judge out."
    )
    return Check("constant_judge", "REVIEW" if found else "PASS", float(len(constant)), 0.0, advice)


def _few_votes(panel: Panel, thresholds: Thresholds) -> Check:
    judges = panel.coords["judge"]
    votes = np.bincount(panel.vote_judge, minlength=len(judges))
    few = np.flatnonzero(votes < thresholds.votes_review)
    found = ", ".join(f"{judges[j]} ({votes[j]})" for j in few[:5])
    found += f" and {len(few) - 5} more" if len(few) > 5 else ""
    advice = (
        "Every judge has votes enough."
        if not found
        else f"Judges with few votes: {found}. Their emissions are their prior: pool emissions (prior/emission=pooled)."
    )
    return Check("few_votes", "REVIEW" if found else "PASS", float(votes.min()), thresholds.votes_review, advice)
