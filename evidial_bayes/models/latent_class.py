"""Random-effects latent class analysis (RE-LCA), with the state and the cell effect summed out.

With ``π(x)`` the prevalence of the states at covariates ``x``, ``e_j`` the emissions of judge j, ``b`` the effect of a
cell and ``O_u`` the judges who voted on it, the likelihood of a cell is

    Σ_k π_k(x_u) ∫ Π_{j ∈ O_u} e_j(y_uj | k, b) N(b | 0, σ²) db.

Sources: EviDial (arXiv 2610.27541) §3.3 and App. F; Dawid & Skene (1979), Applied Statistics 28; Qu, Tan & Kutner
(1996), Biometrics 52.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.nn import logsumexp

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.panel import Panel
from evidial_bayes.data.patterns import Patterns, unique_patterns
from evidial_bayes.models.base import Params, Prepared
from evidial_bayes.models.design import prevalence_design
from evidial_bayes.models.priors import (
    DiagonalDirichlet,
    LogRatioDirichlet,
    SymmetricDirichlet,
    ZeroSumSlopes,
    from_log_ratio,
    to_log_ratio,
)
from evidial_bayes.models.quadrature import GaussHermite, PaperGrid

DEPENDENCE = ("none", "clarity")
# Products of more probabilities than this could underflow in float32.
MOST_JUDGES_IN_PROBABILITY_SPACE = 6


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["patterns", "reads"],
    meta_fields=["space"],
)
@dataclass(frozen=True, eq=False)
class LatentClassData:
    """A panel as the latent class model sees it.

    Parameters
    ----------
    patterns
        Distinct votes and covariates.
    reads
        Float ``[state, category]``: one-hot category that a faultless judge casts in each state.
    space
        Where the product over judges is taken: ``probability``, which is fastest for a few judges with one vote a cell
        each, or ``log``, which neither underflows nor minds replicates.
    """

    patterns: Patterns
    reads: np.ndarray
    space: Literal["probability", "log"]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["prevalence", "slope", "emission", "sigma"],
    meta_fields=["dependence", "prevalence_formula", "quadrature"],
)
@dataclass(frozen=True, eq=False)
class LatentClass:
    """RE-LCA: prevalence regression, judge-specific emissions and a cell effect shared by all judges.

    ==============  =====================  ==========================================================================
    site            dims                   estimand
    ==============  =====================  ==========================================================================
    ``prevalence``  state                  share of each state at the average covariates
    ``slope``       state, effect          change of the states' log-odds with a covariate, summing to zero over states
    ``emission``    judge, state, category probability of a judge's vote given the state, in a cell of average clarity
    ``sigma``       –                      standard deviation of the cell effect, in log-odds (``clarity`` only)
    ==============  =====================  ==========================================================================

    Parameters
    ----------
    prevalence, slope, emission, sigma
        Priors of the sites above. ``sigma`` is any NumPyro distribution on the positive numbers.
    dependence
        How votes depend on each other given the state. ``none``: not at all (Dawid & Skene). ``clarity``: the cell
        effect b multiplies the odds of the vote that the state reads as by exp(b), for all judges: a clear cell is
        read rightly by everybody, an unclear one wrongly.
    prevalence_formula
        Covariates of the prevalence, a one-sided formula in columns of the table of cells; ``~ 1`` for none.
    quadrature
        Nodes of the integral over the cell effect.

    Raises
    ------
    InputError
        Unknown ``dependence``.
    """

    prevalence: SymmetricDirichlet = field(default_factory=SymmetricDirichlet)
    slope: ZeroSumSlopes = field(default_factory=ZeroSumSlopes)
    emission: DiagonalDirichlet = field(default_factory=DiagonalDirichlet)
    sigma: dist.Distribution = field(default_factory=lambda: dist.HalfNormal(1.0))
    dependence: Literal["none", "clarity"] = "clarity"
    prevalence_formula: str = "~ source + dimension_group"
    quadrature: GaussHermite | PaperGrid = field(default_factory=GaussHermite)

    def __post_init__(self) -> None:
        """Check the structural switches."""
        if self.dependence not in DEPENDENCE:
            raise InputError(
                f"model.dependence: '{self.dependence}' is unknown.{suggest(self.dependence, DEPENDENCE)} "
                f"Allowed: {', '.join(DEPENDENCE)}."
            )

    def prepare(self, panel: Panel) -> Prepared:
        """Collapse the panel to distinct patterns of votes, covariates and known states.

        Raises
        ------
        InputError
            The prevalence formula does not fit the table of cells.
        """
        design, effect = prevalence_design(self.prevalence_formula, panel)
        patterns, pattern = unique_patterns(panel, design)
        few = patterns.votes.shape[1] <= MOST_JUDGES_IN_PROBABILITY_SPACE
        once = patterns.votes.sum(-1).max(initial=0) <= 1
        data = LatentClassData(
            patterns=patterns,
            reads=np.eye(len(panel.codebook.categories))[panel.codebook.reading],
            space="probability" if few and once else "log",
        )
        dims: dict[str, tuple[str, ...]] = {"emission": ("judge", "state", "category"), "prevalence": ("state",)}
        if len(effect):
            dims["slope"] = ("state", "effect")
        if self.dependence != "none":
            dims["sigma"] = ()
        coords = {name: panel.coords[name] for name in ("judge", "state", "category")}
        if len(effect):
            coords["effect"] = effect
        return Prepared(data=data, pattern=pattern, dims=dims, coords=coords)

    def __call__(self, data: LatentClassData) -> None:
        """Run the NumPyro program: priors, and the votes of all cells as one factor."""
        n_judges, n_states, n_effects = self._sizes(data)
        x = numpyro.sample("prevalence_log_ratio", LogRatioDirichlet(self.prevalence.over(n_states)))
        log_prevalence = from_log_ratio(x)
        params = {"prevalence": numpyro.deterministic("prevalence", jnp.exp(log_prevalence))}
        if n_effects:
            with numpyro.plate("effect", n_effects):
                by_effect = numpyro.sample("slope_by_effect", self.slope.over(n_states))
            params["slope"] = numpyro.deterministic("slope", by_effect.T)
        with numpyro.plate("judge", n_judges, dim=-2), numpyro.plate("state", n_states, dim=-1):
            x = numpyro.sample("emission_log_ratio", LogRatioDirichlet(self.emission.over(data.reads)))
        log_emission = from_log_ratio(x)
        params["emission"] = numpyro.deterministic("emission", jnp.exp(log_emission))
        if self.dependence != "none":
            params["sigma"] = numpyro.sample("sigma", self.sigma)
        joint = self._log_joint(log_prevalence, log_emission, params, data)
        numpyro.factor("votes", data.patterns.count @ logsumexp(joint, axis=-1))

    def initial(self, data: LatentClassData) -> dict[str, Array]:
        """Prior means with diagonal emissions, a small cell effect and no covariate effects."""
        n_judges, n_states, n_effects = self._sizes(data)
        emission = self.emission.over(data.reads)
        emission = emission / emission.sum(-1, keepdims=True)
        start = {
            "prevalence_log_ratio": jnp.zeros(n_states - 1),
            "emission_log_ratio": jnp.broadcast_to(
                to_log_ratio(emission), (n_judges, n_states, emission.shape[-1] - 1)
            ),
        }
        if n_effects:
            start["slope_by_effect"] = jnp.zeros((n_effects, n_states))
        if self.dependence != "none":
            start["sigma"] = jnp.asarray(0.5)
        return start

    def log_likelihood(self, params: Params, data: LatentClassData) -> Array:
        """Log probability of the votes of one cell, states and cell effect summed out: ``[pattern]``."""
        return logsumexp(self._log_joint(*_logs(params), params, data), axis=-1)

    def state_probabilities(self, params: Params, data: LatentClassData) -> Array:
        """Probability of each state given votes and parameters, normalised over states and cell effect jointly.

        Cells without votes keep their prevalence; known cells have all probability on their state.

        Returns
        -------
        Array
            ``[pattern, state]``.
        """
        return jax.nn.softmax(self._log_joint(*_logs(params), params, data), axis=-1)

    def log_prior(self, params: Params, data: LatentClassData) -> dict[str, Array]:
        """Log prior density of every site on its own scale (simplexes as Dirichlet densities)."""
        _, n_states, n_effects = self._sizes(data)
        out = {
            "prevalence": dist.Dirichlet(self.prevalence.over(n_states)).log_prob(_inside(params["prevalence"])),
            "emission": dist.Dirichlet(self.emission.over(data.reads)).log_prob(_inside(params["emission"])).sum(),
        }
        if n_effects:
            out["slope"] = self.slope.over(n_states).log_prob(params["slope"].T).sum()
        if self.dependence != "none":
            out["sigma"] = self.sigma.log_prob(params["sigma"])
        return out

    def _sizes(self, data: LatentClassData) -> tuple[int, int, int]:
        return data.patterns.votes.shape[1], data.reads.shape[0], data.patterns.design.shape[1]

    def _log_joint(self, log_prevalence: Array, log_emission: Array, params: Params, data: LatentClassData) -> Array:
        """Log probability of votes and state, cell effect summed out: ``[pattern, state]``."""
        patterns = data.patterns
        log_f = self._log_votes_given_state(log_emission, params, data)[patterns.vote_pattern]
        logits = log_prevalence + jnp.zeros((len(patterns.design), 1))
        if "slope" in params:
            logits = log_prevalence + patterns.design @ params["slope"].T
        log_pi = jax.nn.log_softmax(logits, axis=-1)[patterns.design_row]
        log_pi = jnp.where(patterns.constructed[:, None], 0.0, log_pi)
        states = jnp.arange(log_f.shape[-1])
        possible = (patterns.known[:, None] < 0) | (patterns.known[:, None] == states)
        return jnp.where(possible, log_pi + log_f, -jnp.inf)

    def _log_votes_given_state(self, log_emission: Array, params: Params, data: LatentClassData) -> Array:
        """Log probability of the votes given the state, cell effect summed out: ``[vote_pattern, state]``."""
        votes = data.patterns.votes
        if self.dependence == "none":
            return jnp.einsum("vjc,jkc->vk", votes, log_emission)
        b, log_weight = self.quadrature(params["sigma"])
        # Emissions at every node [judge, state, node, category].
        log_e = jax.nn.log_softmax(log_emission[:, :, None, :] + b[:, None] * data.reads[:, None, :], axis=-1)
        n_patterns, n_judges, n_categories = votes.shape
        n_states, n_nodes = log_e.shape[1:3]
        table = jnp.moveaxis(log_e, -1, 1).reshape(n_judges, n_categories, n_states * n_nodes)
        if data.space == "log":
            log_product = votes.reshape(n_patterns, -1) @ table.reshape(n_judges * n_categories, -1)
            return logsumexp(log_product.reshape(n_patterns, n_states, n_nodes) + log_weight, axis=-1)
        silent = 1.0 - votes.sum(-1)
        product = jnp.ones(())
        for j, probability in enumerate(jnp.exp(table)):
            product = product * (votes[:, j] @ probability + silent[:, j, None])
        return jnp.log(product.reshape(n_patterns, n_states, n_nodes) @ jnp.exp(log_weight))


def _logs(params: Params) -> tuple[Array, Array]:
    return jnp.log(_inside(params["prevalence"])), jnp.log(_inside(params["emission"]))


def _inside(p: Array) -> Array:
    """Keep probabilities that underflowed to zero away from it: zero counts times log zero would be NaN."""
    return jnp.maximum(p, jnp.finfo(jnp.result_type(p)).tiny)
