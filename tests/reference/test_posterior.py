import numpy as np
import pytest

from evidial_bayes.data.errors import InputError
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.reference.posterior import posterior_reference


@pytest.fixture
def fitted(fit, model, panel):
    return fit, model, panel


def test_probabilities_are_the_models_averaged_over_draws(fitted):
    fit, model, panel = fitted
    reference = posterior_reference(fit, model, panel)
    prepared = model.prepare(panel)
    by_hand = np.zeros((len(panel.cells), len(panel.codebook.states)))
    for chain, draw in np.ndindex(4, 30):
        params = {name: fit["posterior"][name].values[chain, 10 * draw] for name in prepared.dims}
        by_hand += np.asarray(model.state_probabilities(params, prepared.data))[prepared.pattern] / 120
    thinned = posterior_reference(fit, model, panel, draws=120)
    np.testing.assert_allclose(thinned.probability, by_hand, atol=1e-12)
    assert reference.conditional.shape[0] == 1200


def test_cells_without_votes_are_unresolved_and_entropy_can_leave_more_unresolved(fitted):
    fit, model, panel = fitted
    everything = posterior_reference(fit, model, panel)
    np.testing.assert_array_equal(everything.resolved, panel.n_votes > 0)
    strict = posterior_reference(fit, model, panel, max_entropy=0.4)
    np.testing.assert_array_equal(strict.resolved, (panel.n_votes > 0) & (everything.entropy <= 0.4))
    assert 0 < strict.resolved.sum() < everything.resolved.sum()


def test_draws_are_thinned_evenly_over_chains(fitted):
    fit, model, panel = fitted
    every = posterior_reference(fit, model, panel).conditional
    np.testing.assert_array_equal(posterior_reference(fit, model, panel, draws=240).conditional, every[::5])
    assert len(posterior_reference(fit, model, panel, draws=5000).conditional) == 1200


def test_a_fit_of_something_else_is_refused(fitted):
    fit, model, panel = fitted
    with pytest.raises(InputError, match="of another model: it has the parameters emission, prevalence, sigma, slope"):
        posterior_reference(fit, LatentClass(dependence="none"), panel)
    other = fit.copy()
    other.attrs = {**fit.attrs, "panel_hash": "0"}
    with pytest.raises(InputError, match="not of this panel"):
        posterior_reference(other, model, panel)


@pytest.mark.parametrize(("name", "value"), [("draws", 0), ("draws", 1.5), ("max_entropy", -1.0)])
def test_settings_out_of_range_are_named(fitted, name, value):
    with pytest.raises(InputError, match=rf"reference\.{name}: {value}"):
        posterior_reference(*fitted, **{name: value})
