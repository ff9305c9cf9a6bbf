"""The votes of a panel, group of judges by group of judges."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from evidial_bayes.data.panel import Panel
from evidial_bayes.data.patterns import Patterns


@partial(jax.tree_util.register_dataclass, data_fields=["readers", "votes", "row"], meta_fields=["family"])
@dataclass(frozen=True, eq=False)
class VoteGroup:
    """Distinct votes of the readers of one judge family.

    Families vote in fewer distinct ways than panels, so that what is computed for each family follows these ways and
    not the patterns of the whole panel.

    Parameters
    ----------
    family
        Position among all families.
    readers
        Int ``[reader of the family]``: positions among all readers.
    votes
        Float ``[family_pattern, reader of the family, category]``.
    row
        Int ``[vote_pattern]``: position in ``votes``.
    """

    family: int
    readers: np.ndarray
    votes: np.ndarray
    row: np.ndarray


def judge_families(panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Families of the panel's judges, by first judge: names ``[judge_family]`` and position of each judge's."""
    kept = panel.judges.loc[panel.coords["judge"], "judge_family"].to_numpy()
    names, first, code = np.unique(kept, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return names[order], np.argsort(order)[code]


def vote_groups(patterns: Patterns, family: np.ndarray) -> tuple[VoteGroup, ...]:
    """Split votes by family.

    Parameters
    ----------
    patterns
        Votes of all readers.
    family
        Int ``[judge]``: family of every judge.

    Returns
    -------
    tuple of VoteGroup
        One for each family, in order.
    """
    n_readers = patterns.votes.shape[1]
    of_reader = np.tile(family, n_readers // len(family))
    groups = []
    for code in range(family.max() + 1):
        readers = np.flatnonzero(of_reader == code)
        votes = patterns.votes[:, readers]
        rows = np.ascontiguousarray(votes.reshape(len(votes), -1))
        _, first, row = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        groups.append(VoteGroup(family=code, readers=readers, votes=votes[first], row=row.ravel()))
    return tuple(groups)
