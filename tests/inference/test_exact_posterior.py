"""Inference on a panel so small that its posterior is integrated over all parameters at once, on a grid."""

import arviz_stats
import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.panel import build_panel
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.models.emission.dirichlet import DiagonalDirichlet
from evidial_bayes.models.latent_class import LatentClass

VOTES = {"00": 9, "01": 3, "10": 2, "11": 7, "0.": 2, ".1": 1}
NAMES = ("prevalence", "e00", "e01", "e10", "e11", "sigma")


@pytest.fixture(scope="module")
def tiny():
    """Two judges on 24 cells, two states, some votes missing."""
    states = ["0", "1"]
    book = Codebook.from_mapping({"name": "tiny", "states": states, "categories": states})
    cells = [votes for votes, n in VOTES.items() for _ in range(n)]
    rows = [(f"u{u:02d}", f"j{j}", vote) for u, votes in enumerate(cells) for j, vote in enumerate(votes)]
    votes = pd.DataFrame([row for row in rows if row[2] != "."], columns=["cell_id", "judge", "vote"])
    ids = [f"u{u:02d}" for u in range(len(cells))]
    return build_panel(votes, pd.DataFrame({"cell_id": ids, "participant_id": ids}), book, min_valid_share=0.0)


def exact_posterior(nodes):
    """Mean and standard deviation of the parameters, and of state 1 given each kind of votes.

    Prevalence of state 0 and the probabilities e[judge, state] of vote 0 are uniform and Beta(8, 1), Beta(1, 8);
    σ is half-normal. In state k the effect b multiplies the odds of vote k by exp(b).
    """
    x, w = np.polynomial.legendre.leggauss(nodes)
    p, wp = (x + 1) / 2, w / 2
    sigma, w_sigma = 4.5 * p, 4.5 * wp * stats.halfnorm.pdf(4.5 * p)
    z = np.linspace(-7, 7, 141)
    wz = stats.norm.pdf(z) * (z[1] - z[0])
    # Probability of vote 0: [state, e, sigma, z].
    b = sigma[:, None] * z
    odds = (p / (1 - p))[:, None, None] * np.exp(np.stack([b, -b]))[:, None]
    vote = {"0": odds / (1 + odds), "1": 1 / (1 + odds), ".": np.ones_like(odds)}
    # Probability of both judges' votes: [state, e of judge 0, e of judge 1, sigma].
    both = {v: np.einsum("kisz,kjsz,z->kijs", vote[v[0]], vote[v[1]], wz) for v in VOTES}
    likely, unlikely = stats.beta(8, 1).pdf(p) * wp, stats.beta(1, 8).pdf(p) * wp
    axes = dict(zip("ackbdf", (wp, likely, likely, unlikely, unlikely, w_sigma), strict=True))

    def on_grid(votes):
        """[prevalence a, e00 c, e10 k, e01 b, e11 d, sigma f] of state 0 and of state 1."""
        zero, one = both[votes]
        return (p[:, None, None, None, None, None] * zero[None, :, :, None, None, :],
                (1 - p)[:, None, None, None, None, None] * one[None, None, None, :, :, :])  # fmt: skip

    log = sum(n * np.log(sum(on_grid(v))) for v, n in VOTES.items())
    density = np.exp(log - log.max())
    for axis, weight in enumerate(axes.values()):
        density *= weight.reshape([-1 if i == axis else 1 for i in range(6)])
    density /= density.sum()
    found = {}
    for name, axis, value in zip(
        ("prevalence", "e00", "e10", "e01", "e11", "sigma"), range(6), (p,) * 5 + (sigma,), strict=True
    ):
        margin = density.sum(tuple(i for i in range(6) if i != axis))
        mean = margin @ value
        found[name] = mean, np.sqrt(margin @ (value - mean) ** 2)
    for votes in VOTES:
        zero, one = on_grid(votes)
        found[votes] = (density * one / (zero + one)).sum(), None
    return found


@pytest.fixture(scope="module")
def exact():
    found, coarser = exact_posterior(12), exact_posterior(9)
    for name, (mean, _) in found.items():
        assert mean == pytest.approx(coarser[name][0], abs=2e-3)
    return found


@pytest.fixture(scope="module")
def tiny_model():
    return LatentClass(prevalence_formula="~ 1", emission=DiagonalDirichlet(8.0, 1.0), sigma=dist.HalfNormal(1.0))


def draws_of(posterior):
    """Draws ``[chain, draw]`` of what the grid integrates."""
    draws = {"prevalence": posterior["prevalence"][..., 0], "sigma": posterior["sigma"]}
    draws |= {f"e{j}{k}": posterior["emission"][..., j, k, 0] for j in range(2) for k in range(2)}
    return {name: draws[name].to_numpy() for name in NAMES}


@pytest.mark.parametrize("metric", ["laplace", "dense"])
def test_nuts_has_the_exact_posterior(tiny, tiny_model, exact, metric):
    sampler = NUTS(num_warmup=500, num_samples=1500, metric=metric, progress=False)
    fit = sampler.fit(jax.random.key(1), tiny_model, tiny)
    for name, draws in draws_of(fit["posterior"].dataset).items():
        mean, sd = exact[name]
        ess = arviz_stats.base.array_stats.ess(draws, method="mean", chain_axis=0, draw_axis=1)
        assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(ess) + 1e-3, name
        ess = arviz_stats.base.array_stats.ess(draws, method="sd", chain_axis=0, draw_axis=1)
        kurtosis = stats.kurtosis(draws.ravel(), fisher=False)
        assert abs(draws.std() / sd - 1) < 4 * np.sqrt((kurtosis - 1) / 4 / ess) + 2e-3, name
