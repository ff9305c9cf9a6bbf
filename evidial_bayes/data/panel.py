"""The panel: votes of judges on cells as integer codes with named coordinates."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.tables import check_cells, check_vote_cells, check_votes


@dataclass(frozen=True, eq=False, repr=False)
class Panel:
    """Valid votes of the judges that passed the gate, and every planned cell.

    Built by `build_panel`; compared by identity, and opaque to JAX. Arrays are read-only.

    Parameters
    ----------
    codebook
        Meaning of states, categories and labels.
    cells
        One row per planned cell, voted or not, in planned order. Index ``cell``; columns participant_id,
        source, dimension, dimension_group, and what else the cells table had (language, native_label,
        native_score, split, covariates). The known state is in `known`.
    vote_cell
        int64 [vote], position in ``cells``. Votes are sorted by cell, judge, category, so the order of the
        table's rows leaves no trace.
    vote_judge
        int64 [vote], position in ``coords["judge"]``. Replicates are separate votes of one judge.
    vote_category
        int64 [vote], position in ``codebook.categories``.
    judges
        One row per judge seen, excluded ones included, sorted by name. Index ``judge``; columns judge_family,
        n_votes (rows of the votes table), n_valid, n_invalid (outside the codebook), n_missing (empty),
        valid_share (n_valid / n_votes), excluded.
    known
        int64 [cell], state where it is known, else -1.
    constructed
        bool [cell], whether the state is known by construction, so that prevalence does not apply.
    """

    codebook: Codebook
    cells: pd.DataFrame
    vote_cell: np.ndarray
    vote_judge: np.ndarray
    vote_category: np.ndarray
    judges: pd.DataFrame
    known: np.ndarray
    constructed: np.ndarray

    @cached_property
    def coords(self) -> Mapping[str, pd.Index]:
        """Names along every dim: cell, judge (kept), participant (by first cell), state, category."""
        return {
            "cell": self.cells.index,
            "judge": self.judges.index[~self.judges["excluded"].to_numpy()],
            "participant": pd.Index(self.cells["participant_id"].unique(), name="participant"),
            "state": pd.Index(self.codebook.states, name="state"),
            "category": pd.Index(self.codebook.categories, name="category"),
        }

    @cached_property
    def participant(self) -> np.ndarray:
        """Participant of every cell: int64 [cell], position in ``coords["participant"]``."""
        return _fixed(self.coords["participant"].get_indexer(self.cells["participant_id"]))

    @cached_property
    def n_votes(self) -> np.ndarray:
        """Valid votes per cell: int64 [cell]."""
        return _fixed(np.bincount(self.vote_cell, minlength=len(self.cells)))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the contents: codebook, cells, judges, votes, known states; the same in every process.

        Descriptions, dimensions and instruments of the codebook are left out: they reach the numbers only
        through the cells.
        """
        codebook = asdict(self.codebook)
        for key in ("name", "descriptions", "dimensions", "instruments"):
            del codebook[key]
        digest = hashlib.sha256()
        parts = [codebook, _contents(self.cells), _contents(self.judges)]
        for part in parts:
            digest.update(json.dumps(part, ensure_ascii=True, sort_keys=True).encode())
        for codes in (self.vote_cell, self.vote_judge, self.vote_category, self.known, self.constructed):
            digest.update(f"[{len(codes)}]".encode())
            digest.update(np.ascontiguousarray(codes, dtype="<i8").tobytes())
        return digest.hexdigest()

    def hidden(self) -> "Panel":
        """Make the panel without the known states of sampled cells: what a fit sees that is calibrated on them."""
        return replace(self, known=_fixed(np.where(self.constructed, self.known, -1)))

    def __repr__(self) -> str:
        """One line of sizes."""
        sizes = {
            "cells": len(self.cells),
            "participants": len(self.coords["participant"]),
            "judges": len(self.coords["judge"]),
            "votes": len(self.vote_cell),
            "states": len(self.codebook.states),
        }
        return f"Panel({', '.join(f'{n} {what}' for what, n in sizes.items())})"


def build_panel(votes: pd.DataFrame, cells: pd.DataFrame, codebook: Codebook, min_valid_share: float = 0.5) -> Panel:
    """Turn the votes and cells tables into a panel.

    Parameters
    ----------
    votes, cells
        As `read_votes` and `read_cells` return them; other frames are checked first.
    codebook
        Meaning of the votes.
    min_valid_share
        A judge whose share of valid votes (in the codebook, over all its rows) is below this is excluded by
        name; so is a judge without any valid vote.

    Returns
    -------
    Panel

    Raises
    ------
    InputError
        A table does not pass its checks, a vote names an unknown cell, or fewer than two judges pass the
        gate.
    """
    if not 0 <= min_valid_share <= 1:
        raise InputError(f"min_valid_share: {min_valid_share!r} is no share; allowed: 0 to 1.")
    if cells.attrs.get("table") != "cells":
        cells = check_cells(cells, codebook)
    if votes.attrs.get("table") != "votes":
        votes = check_votes(votes, codebook)
    check_vote_cells(votes, cells)

    category = pd.Index(codebook.categories).get_indexer(votes["vote"])
    judges = _judges(votes, category >= 0, min_valid_share)
    kept = judges.index[~judges["excluded"].to_numpy()]
    if len(kept) < 2:
        raise InputError(_gated(judges, min_valid_share, codebook, votes.attrs.get("file", "votes")))

    cell = pd.Index(cells["cell_id"]).get_indexer(votes["cell_id"])
    judge = kept.get_indexer(votes["judge"])
    valid = (category >= 0) & (judge >= 0)
    cell, judge, category = cell[valid], judge[valid], category[valid]
    order = np.lexsort((category, judge, cell))

    index = pd.Index(cells["cell_id"], name="cell")
    nothing = pd.Series(np.nan, index=cells.index, dtype="str")
    known_state, known_by = cells.get("known_state", nothing), cells.get("known_by", nothing)
    table = cells.drop(columns=["cell_id", "known_state", "known_by"], errors="ignore").set_axis(index, axis="index")
    table.attrs = {}
    return Panel(
        codebook=codebook,
        cells=table,
        vote_cell=_fixed(cell[order]),
        vote_judge=_fixed(judge[order]),
        vote_category=_fixed(category[order]),
        judges=judges,
        known=_fixed(pd.Index(codebook.states).get_indexer(known_state)),
        constructed=_fixed((known_by == "constructed").to_numpy(dtype=bool, na_value=False), dtype=np.bool_),
    )


def _judges(votes: pd.DataFrame, valid: np.ndarray, min_valid_share: float) -> pd.DataFrame:
    missing = votes["vote"].isna().to_numpy()
    counts = (
        pd.DataFrame(
            {
                "judge": votes["judge"].to_numpy(),
                "n_votes": 1,
                "n_valid": valid.astype(np.int64),
                "n_invalid": (~valid & ~missing).astype(np.int64),
                "n_missing": missing.astype(np.int64),
            }
        )
        .groupby("judge", sort=True)
        .sum()
    )
    judges = counts.index.to_series()
    if "judge_family" in votes:
        # A judge without a family is its own.
        families = votes.groupby("judge", sort=True)["judge_family"].first()
        judges = families.reindex(counts.index).fillna(judges)
    counts.insert(0, "judge_family", judges.to_numpy())
    counts["valid_share"] = counts["n_valid"] / counts["n_votes"]
    counts["excluded"] = (counts["valid_share"] < min_valid_share) | (counts["n_valid"] == 0)
    return counts


def _gated(judges: pd.DataFrame, min_valid_share: float, codebook: Codebook, file: str) -> str:
    shares = [
        f"'{judge}' {row.n_valid} of {row.n_votes} votes valid"
        for judge, row in zip(judges.index[:5], judges[:5].itertuples(), strict=True)
    ]
    kept = int((~judges["excluded"]).sum())
    return (
        f"{file}: {kept} of {len(judges)} judges left by the gate (a share of valid votes above 0 and of at "
        f"least {min_valid_share:g}), but two are needed: {'; '.join(shares)}"
        f"{'; ...' if len(judges) > 5 else ''}. "
        f"Valid votes are: {', '.join(codebook.categories)}."
    )


def _contents(table: pd.DataFrame) -> dict[str, object]:
    """Read a table as plain lists by column; missing values are None whatever their type."""
    named = table.reset_index()
    return {
        str(column): [
            None if gone else value for value, gone in zip(named[column].tolist(), named[column].isna(), strict=True)
        ]
        for column in named
    }


def _fixed(values: np.ndarray, dtype: type = np.int64) -> np.ndarray:
    array: np.ndarray = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array
