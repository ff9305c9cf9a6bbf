"""Every YAML composes and builds, and the gate says what is wrong with one that does not."""

from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from evidial_bayes.audit import Uncertainty
from evidial_bayes.config import build, conf_dir, reference_settings
from evidial_bayes.data.codebook import Codebook
from evidial_bayes.data.errors import InputError
from evidial_bayes.data.simulation_settings import SimulationSettings
from evidial_bayes.inference.nuts import NUTS
from evidial_bayes.inference.verdict import Thresholds
from evidial_bayes.models.latent_class import LatentClass
from evidial_bayes.models.quadrature import GaussHermite, PaperGrid
from evidial_bayes.reference.calibration import Confusion, LogLinear
from evidial_bayes.reference.one_pass import OnePass

CONF = Path(__file__).resolve().parents[1] / "conf"
COMMANDS = ("audit", "fit", "simulate")
BUILT = ("model", "inference", "checks", "uncertainty", "quadrature", "prior")
#: Every option of every group, as (group, option).
OPTIONS = sorted(
    (path.parent.relative_to(CONF).as_posix(), path.stem)
    for path in CONF.rglob("*/*.yaml")
    if path.relative_to(CONF).parts[0] != "hydra"
)


def composed(command, *overrides):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose(command, list(overrides))


def built(*overrides, key="model"):
    return build(composed("audit", *overrides), key)


def test_configuration_of_the_repository_is_the_one_read():
    assert conf_dir() == CONF


@pytest.mark.parametrize("command", COMMANDS)
def test_root_composes_within_its_schema(command):
    config = composed(command)
    assert config.seed == 0
    assert OmegaConf.get_type(config).__name__.lower() == command


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_option_composes_and_builds(group, option):
    command = "audit" if group != "data" or option != "simulate" else "simulate"
    config = composed(command, f"{group}={option}")
    Codebook.from_mapping(OmegaConf.to_container(config.codebook, resolve=True))
    if command == "simulate":
        SimulationSettings.from_mapping(OmegaConf.to_container(config.data, resolve=True))
        return
    for key in BUILT:
        build(config, key)
    reference_settings(config)


def test_every_yaml_is_a_root_an_option_or_part_of_hydra():
    names = {path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")}
    options = {f"{group}/{option}.yaml" for group, option in OPTIONS}
    hydra = {name for name in names if name.startswith("hydra/")}
    assert names == options | hydra | {f"{command}.yaml" for command in COMMANDS} | {"layout.yaml"}


@pytest.mark.parametrize("command", ["audit", "fit"])
@pytest.mark.parametrize("option", ["paper", "quick"])
def test_experiments_suit_every_command_that_fits(command, option):
    config = composed(command, f"experiment={option}")
    for key in BUILT:
        build(config, key)


def test_defaults_in_yaml_are_those_of_the_constructors():
    assert built(key="inference") == NUTS()
    assert built(key="uncertainty") == Uncertainty()
    assert built(key="checks") == Thresholds()
    model, default = built(), LatentClass()
    for name in ("prevalence", "slope", "emission", "dependence", "prevalence_formula", "quadrature"):
        assert getattr(model, name) == getattr(default, name), name
    assert isinstance(model.sigma, dist.HalfNormal)
    assert float(model.sigma.scale) == float(default.sigma.scale)


def test_simulation_defaults_in_yaml_are_those_of_the_constructor():
    mapping = OmegaConf.to_container(composed("simulate").data, resolve=True)
    assert SimulationSettings.from_mapping(mapping) == SimulationSettings()


def test_paper_experiment_takes_the_papers_grid():
    config = composed("audit", "experiment=paper")
    assert build(config, "model").quadrature == PaperGrid()
    assert build(config, "uncertainty").weights == "multinomial"
    assert build(composed("audit"), "model").quadrature == GaussHermite(15)


def test_progress_follows_one_switch():
    assert built(key="inference").progress is True
    assert built("progress=false", key="inference").progress is False


def test_overrides_reach_the_object():
    model = built("model.dependence=none", "prior.sigma.scale=2", "quadrature.nodes=7", "prior.emission.diagonal=9")
    assert model.dependence == "none"
    assert model.quadrature == GaussHermite(7)
    assert model.emission.diagonal == 9.0
    assert isinstance(model.emission.diagonal, float), "an integer would compile a second program"
    assert isinstance(model.sigma.scale, float)
    assert model.sigma.scale == 2.0


def test_another_distribution_may_be_named():
    sigma = {"_target_": "numpyro.distributions.Gamma", "concentration": 2, "rate": 1}
    model = build(DictConfig({**composed("audit"), "prior": {**composed("audit").prior, "sigma": sigma}}), "model")
    assert isinstance(model.sigma, dist.Gamma)
    concentration = [1, 2.5]
    vector = {"p": {"_target_": "numpyro.distributions.Dirichlet", "concentration": concentration}}
    np.testing.assert_array_equal(build(DictConfig(vector), "p").concentration, concentration)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["+prior.sigma.scal=2"],
            r"^prior\.sigma\.scal: HalfNormal has no argument 'scal'.* Did you mean 'scale'\?",
        ),
        (["+model.dependance=none"], r"^model\.dependance: LatentClass has no.* Did you mean 'dependence'\?"),
        (["prior.sigma.scale=-1"], r"^prior\.sigma\.scale=-1: has to be Positive"),
        (["prior.sigma.scale=wide"], r"^prior\.sigma\.scale='wide': allowed are numbers"),
        (["prior.emission.diagonal=0"], r"^prior\.emission: .*diagonal.* positive"),
        (["prior.emission.diagonal=x"], r"^prior\.emission\.diagonal='x': allowed: numbers"),
        (
            ["model.dependence=clarty"],
            r"^model\.dependence='clarty': allowed: none, clarity, severity\. Did you mean 'clarity'",
        ),
        (["quadrature.nodes=2.5"], r"^quadrature\.nodes=2\.5: allowed: whole numbers"),
        (["quadrature.nodes=0"], r"^quadrature\.nodes: 0 "),
        (["quadrature.nodes=true"], r"^quadrature\.nodes=True: allowed: whole numbers"),
        (["model.slope=${prior.sigma}"], r"^prior\.sigma=.*: allowed: ZeroSumSlopes"),
        (["model.sigma=${prior.sigm}"], r"prior\.sigm"),
        (["model._target_=os.system"], r"^model\._target_: 'os\.system' may not be built"),
        (["prior.sigma._target_=os.system"], r"^prior\.sigma\._target_: 'os\.system' may not be built"),
        (["model._target_=evidial_bayes.export.atomic.os"], r"^model\._target_: .* has no class 'os'"),
        (["model._target_=evidial_bayes.config.build"], r"^model\._target_: .* has no class 'build'"),
        (["model._target_=evidial_bayes.config.Path"], r"^model\._target_: .* has no class 'Path'"),
        (["model._target_=evidial_bayes.models.latent_class.LatentClas"], r"Did you mean 'LatentClass'\?"),
        (
            ["model._target_=evidial_bayes.models.latent.LatentClass"],
            r"no module 'evidial_bayes\.models\.latent'",
        ),
        (["prior.sigma._target_=numpyro.distributions.HalfNorml"], r"Did you mean 'HalfNormal'\?"),
        (
            ["prior.sigma._target_=numpyro.distributions.Gamma", "~prior.sigma.scale"],
            r"concentration is missing",
        ),
        (["prior.sigma.scale=???"], r"^prior\.sigma\.scale is missing"),
    ],
)
def test_gate_names_the_key_that_was_written(overrides, message):
    with pytest.raises(Exception, match=message) as caught:
        built(*overrides)
    # An interpolation that leads nowhere is OmegaConf's to report.
    assert isinstance(caught.value, InputError) or "prior.sigm}" in overrides[0]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reference.draws=0", r"reference\.draws=0: .* from 1"),
        ("reference.draws=many", r"reference\.draws='many': allowed: whole numbers, null"),
        ("reference.max_entropy=-1", r"reference\.max_entropy=-1"),
        ("reference.max_entropy=x", r"reference\.max_entropy='x': allowed: numbers, null"),
        ("reference.from=3", r"reference\.from=3: allowed: text, null"),
        ("+reference.drws=3", r"reference\.drws: .* Did you mean 'draws'\?"),
    ],
)
def test_reference_settings_are_checked(override, message):
    with pytest.raises(InputError, match=message):
        reference_settings(composed("audit", override))


def test_reference_settings_keep_their_kinds():
    settings = reference_settings(composed("audit", "reference.from=a/b", "reference.max_entropy=1"))
    assert (settings.source, settings.draws, settings.max_entropy) == ("a/b", None, 1.0)
    assert isinstance(settings.max_entropy, float)


@pytest.mark.parametrize("command", ["audit", "fit"])
@pytest.mark.parametrize(("experiment", "on"), [("paper", False), ("recommended", True)])
def test_misreading_and_calibration_are_off_in_the_papers_way_and_on_in_ours(command, experiment, on):
    config = composed(command, f"experiment={experiment}")
    assert (build(config, "model").misreading is not None) is on
    assert (reference_settings(config).calibration is not None) is on


def test_calibrations_in_yaml_are_objects_of_their_kind():
    tempered = reference_settings(composed("audit", "reference/calibration=tempered")).calibration
    assert tempered == LogLinear()
    assert reference_settings(composed("audit", "reference/calibration=confusion")).calibration == Confusion()
    pool = reference_settings(composed("fit", "reference/calibration=pool")).calibration
    assert pool.sources == {"posterior": 0.135, "one_pass": None, "family_shares": 0.3}
    assert pool.once == OnePass()
    assert reference_settings(composed("audit")).calibration is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+reference.calibration.sources.postrior=1", r"reference\.calibration: .*'postrior' is unknown"),
        ("reference.calibration.spread=-1", r"reference\.calibration: LogLinear\.spread: -1\.0"),
        ("+reference.calibration.spred=1", r"reference\.calibration\.spred: LogLinear has no argument 'spred'"),
        (
            "reference.calibration._target_=os.system",
            r"reference\.calibration\._target_: 'os\.system' may not be built",
        ),
    ],
)
def test_a_wrong_calibration_is_named(override, message):
    with pytest.raises(InputError, match=message):
        reference_settings(composed("audit", "reference/calibration=tempered", override))
