"""Random-effects latent class analysis (RE-LCA), with the states and all effects summed out.

With ``π(x)`` the prevalence of the states at covariates ``x``, ``e_j`` the emissions of judge j, ``b`` the effect of a
cell and ``O_u`` the judges who voted on it, the likelihood of a cell is

    Σ_k π_k(x_u) ∫ Π_{j ∈ O_u} e_j(y_uj | k, b) N(b | 0, σ²) db,

and the options put further layers around the product: effects of families or of participants, families that read a
state of their own, and a misreading that the whole panel shares.

Sources: EviDial (arXiv 2610.27541) §3.3 and App. F; Dawid & Skene (1979), Applied Statistics 28; Qu, Tan & Kutner
(1996), Biometrics 52; Beath (2017), JSS 81(13).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.nn import logsumexp

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.panel import Panel
from evidial_bayes.models.base import Params, Prepared
from evidial_bayes.models.dependence import Dependence, Loading
from evidial_bayes.models.emission.base import EmissionPrior, Link
from evidial_bayes.models.emission.dirichlet import DiagonalDirichlet
from evidial_bayes.models.joint import (
    by_participant,
    log_emission_by_reader,
    log_joint,
    log_prevalence,
    log_prevalence_by_row,
    participant_node,
)
from evidial_bayes.models.latent_class_data import LatentClassData, latent_class_data
from evidial_bayes.models.latent_class_sites import sites_of
from evidial_bayes.models.priors import Misreading, SymmetricDirichlet, ZeroSumSlopes
from evidial_bayes.models.quadrature import GaussHermite, PaperGrid
from evidial_bayes.models.sites import merged
from evidial_bayes.models.tally import log_likelihood_of
from evidial_bayes.models.votes_given_state import Structure, log_votes_by_family, log_votes_given_state


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "prevalence",
        "slope",
        "emission",
        "sigma",
        "family_effect",
        "family_reading",
        "participant_effect",
        "misreading",
        "unlabelled_weight",
    ],
    meta_fields=["dependence", "loading", "link", "stratum", "prevalence_formula", "quadrature"],
)
@dataclass(frozen=True, eq=False)
class LatentClass:
    """RE-LCA: prevalence regression, judge-specific emissions and effects that judges share.

    ======================  ================================  ==========================================================
    site                    dims                              estimand
    ======================  ================================  ==========================================================
    ``prevalence``          state                             share of each state at the average covariates
    ``slope``               state, effect                     change of the states' log-odds with a covariate, summing
                                                              to zero over states
    ``emission``            (stratum,) judge, state, category probability of a judge's vote given the state, in a cell
                                                              whose effects are zero
    ``sigma``               –, state or judge                 loading: standard deviation of the cell effect, in units
                                                              of the link
    ``family_sigma``        –                                 standard deviation of a family's effect on a cell
    ``participant_sigma``   –                                 standard deviation of a participant's effect
    ``participant_effect``  participant                       effect of each participant
    ``family_reading``      state, judge_family,              probability that a family takes a state for another
                            apparent_state
    ``misreading``          state, apparent_state             the same for the panel as a whole
    ======================  ================================  ==========================================================

    Priors of emissions may add sites: ``accuracy``, ``population``, ``spread``, ``predictor``.

    Parameters
    ----------
    prevalence, slope, emission, sigma
        Priors of the sites above. ``sigma`` is any NumPyro distribution of a number. On the positive numbers it makes
        the sign of the loadings identified: a larger effect moves all judges the same way. On the whole line single
        judges may be moved the other way, and the sign is identified by a positive mean of the loadings.
    family_effect
        Prior of ``family_sigma``; None: no effect. Given state and cell effect, judges of one ``judge_family`` share an
        effect on each cell, so that several prompts of one model do not count as several judges.
    family_reading
        Prior of ``family_reading``; None: all families see the true state. Each family reads an apparent state of its
        own, on which its members' votes depend, and the cell effect acts on that reading: members that copy each other
        carry one vote's worth, however many.
    participant_effect
        Prior of ``participant_sigma``; None: no effect. All cells of a participant share an effect, added to theirs.
    misreading
        Prior of ``misreading``; None: the panel as a whole sees the true state. Without known states the data say
        nothing about it, and it widens every posterior by what the prior says.
    unlabelled_weight
        Weight, 0 to 1, of the log likelihood of cells whose state is not known (a power likelihood).
    dependence
        How votes depend on each other given the state. ``none``: not at all (Dawid & Skene). ``clarity``: the cell
        effect b multiplies the odds of the vote that the state reads as by exp(b): a clear cell is read rightly by
        everybody, an unclear one wrongly. ``severity``: b draws all judges up or down the categories in their order.
    loading
        Whether loadings are ``shared`` or differ by ``state`` or by ``judge``.
    link
        ``logit``, or for two categories ``probit``; readings of families are moved by logit whatever the link.
    stratum
        Column of the table of cells by which judges have emissions of their own, such as ``language``; None: none.
    prevalence_formula
        Covariates of the prevalence, a one-sided formula in columns of the table of cells; ``~ 1`` for none.
    quadrature
        Nodes of the integrals over effects.

    Raises
    ------
    InputError
        An unknown option, or options that exclude each other.
    """

    prevalence: SymmetricDirichlet = field(default_factory=SymmetricDirichlet)
    slope: ZeroSumSlopes = field(default_factory=ZeroSumSlopes)
    emission: EmissionPrior = field(default_factory=DiagonalDirichlet)
    sigma: dist.Distribution = field(default_factory=lambda: dist.HalfNormal(1.0))
    family_effect: dist.Distribution | None = None
    family_reading: Misreading | None = None
    participant_effect: dist.Distribution | None = None
    misreading: Misreading | None = None
    unlabelled_weight: float = 1.0
    dependence: Dependence = "clarity"
    loading: Loading = "shared"
    link: Link = "logit"
    stratum: str | None = None
    prevalence_formula: str = "~ source + dimension_group"
    quadrature: GaussHermite | PaperGrid = field(default_factory=GaussHermite)

    def __post_init__(self) -> None:
        """Check the structural switches."""
        for name, kind in (("dependence", Dependence), ("loading", Loading), ("link", Link)):
            value, allowed = getattr(self, name), get_args(kind.__value__)
            if value not in allowed:
                raise InputError(
                    f"model.{name}: '{value}' is unknown.{suggest(value, allowed)} Allowed: {', '.join(allowed)}."
                )
        if self.dependence == "none":
            for name in ("family_effect", "participant_effect"):
                if getattr(self, name) is not None:
                    raise InputError(f"model.{name} needs to know how effects enter: dependence clarity or severity.")
            if self.loading != "shared":
                raise InputError(
                    f"model.loading: '{self.loading}' needs a cell effect: dependence clarity or severity."
                )
        if self.family_effect is not None and self.family_reading is not None:
            raise InputError("model.family_effect and model.family_reading exclude each other: one of them is null.")
        if self.family_reading is not None and self.loading == "judge":
            raise InputError("model.loading: 'judge' has no place with family_reading, where effects act on families.")
        weight = self.unlabelled_weight
        if isinstance(weight, int | float) and not 0 <= weight <= 1:
            raise InputError(f"model.unlabelled_weight: {weight!r} is not usable; allowed: 0 to 1.")

    def prepare(self, panel: Panel) -> Prepared:
        """Collapse the panel to distinct patterns of votes, covariates and known states.

        Raises
        ------
        InputError
            The prevalence formula or the stratum does not fit the table of cells, or link or emissions need two
            categories.
        """
        n_categories = len(panel.codebook.categories)
        for key, kind in (("link", self.link), ("emission", type(self.emission).__name__)):
            if kind in ("probit", "NormalPredictor") and n_categories != 2:
                book = f"codebook '{panel.codebook.name}' has {n_categories}"
                raise InputError(f"model.{key}: {kind} is for two categories; {book}.")
        units = self.participant_effect is not None
        by_score = self.link == "logit" and self.loading != "judge"
        alone = self.family_effect is None and self.family_reading is None
        tilted = self.dependence if by_score and alone else None
        data, pattern, labels = latent_class_data(
            panel, self.prevalence_formula, self.stratum, units=units, tilted=tilted
        )
        dims = merged(site.dims() for site in sites_of(self, data))
        effects = {"participant_effect": ("participant",)} if units else {}
        used = {dim for names in (*dims.values(), *effects.values()) for dim in names}
        coords = {dim: index for dim, index in labels.items() if dim in used}
        return Prepared(data=data, pattern=pattern, dims=dims, coords=coords, effects=effects)

    def __call__(self, data: LatentClassData) -> None:
        """Run the NumPyro program: priors, and the votes of all cells as one factor."""
        params = merged(site.sample() for site in sites_of(self, data))
        numpyro.factor("votes", self.total_log_likelihood(params, data))

    def initial(self, data: LatentClassData) -> dict[str, Array]:
        """Emissions and prevalence as the vote shares have them, small effects and no covariate effects."""
        return merged(site.initial() for site in sites_of(self, data))

    def log_prior(self, params: Params, data: LatentClassData) -> dict[str, Array]:
        """Log prior density of every site on its own scale (simplexes as Dirichlet densities)."""
        return merged(site.log_prior(params) for site in sites_of(self, data))

    def n_parameters(self, data: LatentClassData) -> int:
        """Count the freely varying parameters that the likelihood sees."""
        return sum(site.n_free() for site in sites_of(self, data))

    def total_log_likelihood(self, params: Params, data: LatentClassData) -> Array:
        """Log probability of all votes, weighted as the program weighs them: a scalar."""
        patterns = data.patterns
        if data.tally is not None:
            log_f = log_votes_given_state(self._structure(), log_emission_by_reader(params), params, data)[..., 0]
            log_pi = log_prevalence_by_row(params, data)
            constructed = not self.emission.uses_anchors
            return log_likelihood_of(data.tally, log_f, log_pi, self.unlabelled_weight, constructed=constructed)
        weight = jnp.asarray(patterns.count) * jnp.where(patterns.known < 0, self.unlabelled_weight, 1.0)
        if self.emission.uses_anchors:
            weight = jnp.where(patterns.constructed, 0.0, weight)
        log_f = logsumexp(log_joint(self._structure(), params, data), axis=1)
        if "participant_sigma" not in params:
            return weight @ log_f[:, 0]
        return logsumexp(by_participant(self.quadrature, log_f, weight, params, data), axis=-1).sum()

    def log_likelihood(self, params: Params, data: LatentClassData) -> Array:
        """Log probability of the votes of one cell, states and effects summed out: ``[pattern]``.

        Where ``participant_effect`` is among the parameters it is taken as given.
        """
        log_f = logsumexp(log_joint(self._structure(), params, data), axis=1)
        if "participant_sigma" not in params:
            return log_f[:, 0]
        if "participant_effect" in params:
            return jnp.take_along_axis(log_f, participant_node(self.quadrature, params, data)[:, None], axis=1)[:, 0]
        return logsumexp(log_f + self.quadrature(params["participant_sigma"])[1], axis=-1)

    def state_probabilities(self, params: Params, data: LatentClassData) -> Array:
        """Probability of each state given votes and parameters, normalised over states and effects jointly.

        Cells without votes keep their prevalence; known cells have all probability on their state. Without
        ``participant_effect`` among the parameters, a participant's other cells say what its effect may be; with it,
        cells are independent.

        Returns
        -------
        Array
            ``[pattern, state]``.
        """
        joint = log_joint(self._structure(), params, data)
        if "participant_sigma" not in params:
            return jax.nn.softmax(joint[..., 0], axis=-1)
        if "participant_effect" in params:
            node = participant_node(self.quadrature, params, data)[:, None, None]
            return jax.nn.softmax(jnp.take_along_axis(joint, node, axis=2)[..., 0], axis=-1)
        units = by_participant(
            self.quadrature, logsumexp(joint, axis=1), jnp.asarray(data.patterns.count), params, data
        )
        node = jax.nn.softmax(units, axis=-1)[data.patterns.unit]
        return (jax.nn.softmax(joint, axis=1) * node[:, None, :]).sum(-1)

    def log_evidence(self, params: Params, data: LatentClassData) -> tuple[Array, Array]:
        """Log prevalence of the states, and log probability of each family's votes by itself given the state.

        Returns
        -------
        tuple of Array
            ``[pattern, state]`` and ``[judge_family, pattern, state]``. The latter is that of a composite likelihood:
            effects that families share are summed out family by family.
        """
        families = log_votes_by_family(self._structure(), log_emission_by_reader(params), params, data)
        return log_prevalence(params, data), families[:, data.patterns.vote_pattern]

    def draw_effects(self, rng_key: Array, params: Params, data: LatentClassData) -> dict[str, Array]:
        """Draw ``participant_effect``, where the model has it, from its posterior on the nodes of the quadrature."""
        if "participant_sigma" not in params:
            return {}
        log_f = logsumexp(log_joint(self._structure(), params, data), axis=1)
        units = by_participant(self.quadrature, log_f, jnp.asarray(data.patterns.count), params, data)
        nodes, _ = self.quadrature(params["participant_sigma"])
        return {"participant_effect": nodes[jax.random.categorical(rng_key, units, axis=-1)]}

    def _structure(self) -> Structure:
        return Structure(self.dependence, self.loading, self.link, self.quadrature)
