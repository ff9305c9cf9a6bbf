"""The sites of a latent class model: which parameters its options bring about, in the order of the posterior."""

from typing import TYPE_CHECKING

import jax.numpy as jnp

from evidial_bayes.models.emission.base import Rows
from evidial_bayes.models.latent_class_data import LatentClassData
from evidial_bayes.models.sites import EmissionSite, LoadingSite, SimplexSite, Site, SlopeSite

if TYPE_CHECKING:
    from evidial_bayes.models.latent_class import LatentClass


def sites_of(model: "LatentClass", data: LatentClassData) -> list[Site]:
    """List the sites of a model of some votes."""
    rows = Rows(data.reads, data.lead, data.anchors, model.link, data.shared_out)
    n_states, n_effects, n_judges = rows.n_states, data.patterns.design.shape[1], data.lead[-1][1]
    named = data.shared_out.sum(-1).reshape(-1, n_states).sum(0)
    sites: list[Site] = [
        EmissionSite(model.emission, rows),
        SimplexSite("prevalence", ("state",), model.prevalence.over(n_states), named),
    ]
    if model.family_reading is not None:
        counts = model.family_reading.over(n_states)[:, None]
        counts = jnp.broadcast_to(counts, (n_states, len(data.groups), n_states))
        sites.append(SimplexSite("family_reading", ("state", "judge_family", "apparent_state"), counts))
    if model.misreading is not None:
        sites.append(SimplexSite("misreading", ("state", "apparent_state"), model.misreading.over(n_states)))
    if n_effects:
        sites.append(SlopeSite(model.slope, n_states, n_effects))
    if model.dependence != "none":
        sizes = {"shared": {}, "state": {"state": n_states}, "judge": {"judge": n_judges}}[model.loading]
        sites.append(LoadingSite("sigma", tuple(sizes), tuple(sizes.values()), model.sigma))
    if model.family_effect is not None:
        sites.append(LoadingSite("family_sigma", (), (), model.family_effect))
    if model.participant_effect is not None:
        sites.append(LoadingSite("participant_sigma", (), (), model.participant_effect))
    return sites
