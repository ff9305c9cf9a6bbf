"""How many independent judges a panel is worth."""

import numpy as np

from evidial_bayes.data.panel import Panel
from evidial_bayes.reference.voting import count_votes

# Fewest cells that two judges share for their correlation to count.
LEAST_OVERLAP = 20


def effective_share_of_judges(panel: Panel) -> float:
    """Estimate the effective over the nominal number of judges, by the design effect of their mean correlation.

    With m votes a cell and mean correlation ρ of the judges' one-hot votes it is ``1 / (1 + (m − 1) ρ)``: m votes carry
    as much as one where judges copy each other, and as m where they do not. Signal that they share counts as
    correlation too, so this is a cautious centre for a prior, and no measurement of shared error, which votes alone
    cannot tell from shared signal.

    Parameters
    ----------
    panel
        Votes.

    Returns
    -------
    float
        Above 0 and at most 1; 1 where no two judges share enough cells.

    Notes
    -----
    Source: Kish (1965), Survey Sampling, §5.4 (design effect of a cluster sample).
    """
    votes = count_votes(panel, np.arange(len(panel.coords["judge"]))).astype(float)  # [judge, cell, category]
    n_votes = votes.sum(-1, keepdims=True)
    voted = n_votes[..., 0] > 0
    one_hot = votes / np.maximum(n_votes, 1.0)
    mean = one_hot.sum(1, keepdims=True) / np.maximum(voted.sum(1), 1)[:, None, None]
    residual = np.where(voted[..., None], one_hot - mean, 0.0).reshape(len(votes), -1)
    has = np.repeat(voted, votes.shape[-1], axis=1).astype(float)
    overlap = voted.astype(float) @ voted.T.astype(float)
    scale = np.sqrt((residual**2 @ has.T) * (has @ (residual**2).T))
    pairs = (overlap >= LEAST_OVERLAP) & (scale > 0) & ~np.eye(len(votes), dtype=bool)
    if not pairs.any():
        return 1.0
    correlation = max(float(((residual @ residual.T)[pairs] / scale[pairs]).mean()), 0.0)
    per_cell = max(float(panel.n_votes[panel.n_votes > 0].mean()), 1.0)
    return 1.0 / (1.0 + (per_cell - 1.0) * correlation)
