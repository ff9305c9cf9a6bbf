"""The No-U-Turn sampler, through NumPyro's kernel."""

from dataclasses import asdict, dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from jax.flatten_util import ravel_pytree

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.chains import ChainMethod, Kernel, Target, run_chains
from evidial_bayes.inference.compilation import Precision, precision, use_compilation_cache
from evidial_bayes.inference.density import constrain, model_centre
from evidial_bayes.inference.progress import sampling_progress
from evidial_bayes.inference.result import assemble_fit
from evidial_bayes.inference.whitening import whitening
from evidial_bayes.models.base import MeasurementModel, Params

Metric = Literal["laplace", "diagonal", "dense"]
# Half width of the uniform jitter about the model's central start, in unconstrained units.
JITTER = 0.5


@dataclass(frozen=True)
class NUTS:
    """Settings of a NUTS run.

    Parameters
    ----------
    num_warmup, num_samples
        Steps of a chain before and after adaptation ends.
    num_chains
        Number of chains, each from its own jittered start.
    chain_method
        ``parallel`` runs every chain in a thread of its own on a CPU, and spreads chains over JAX's devices elsewhere;
        ``vectorized`` runs all chains in one program, where each waits for the longest trajectory; ``sequential`` runs
        one after the other, with the results of ``parallel`` threads.
    target_accept_prob
        Acceptance probability that step-size adaptation aims at.
    max_tree_depth, max_warmup_tree_depth
        A trajectory has at most ``2**depth − 1`` leapfrog steps. During warm-up shorter ones do: before the mass matrix
        is known, long trajectories cost most of the time and teach little.
    metric
        ``laplace`` samples in coordinates whitened by the curvature at the mode, and adapts a diagonal mass matrix to
        what it leaves; with more than 500 coordinates, or without a mode, it is the same as ``diagonal``, which adapts
        alone, as ``dense`` does with a full matrix.
    floats
        Precision of all arithmetic.
    progress
        Show a progress bar with step sizes, divergences and time left, where the output is a terminal.

    Raises
    ------
    InputError
        A setting is out of range.
    """

    num_warmup: int = 500
    num_samples: int = 1000
    num_chains: int = 4
    chain_method: ChainMethod = "parallel"
    target_accept_prob: float = 0.8
    max_tree_depth: int = 10
    max_warmup_tree_depth: int = 6
    metric: Metric = "laplace"
    floats: Precision = "float64"
    progress: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        depths = (("max_tree_depth", 1), ("max_warmup_tree_depth", 1))
        for name, least in (("num_warmup", 1), ("num_samples", 4), ("num_chains", 1), *depths):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"inference.{name}: {value!r} is not usable; allowed: a whole number from {least} on.")
        if not 0 < self.target_accept_prob < 1:
            raise InputError(
                f"inference.target_accept_prob: {self.target_accept_prob!r} is not usable; allowed: between 0 and 1."
            )
        choices = (("chain_method", get_args(ChainMethod)), ("metric", get_args(Metric)))
        for name, allowed in (*choices, ("floats", ("float64", "float32"))):
            if (value := getattr(self, name)) not in allowed:
                raise InputError(
                    f"inference.{name}: '{value}' is unknown.{suggest(value, allowed)} Allowed: {', '.join(allowed)}."
                )

    def fit(self, rng_key: Array, model: MeasurementModel, panel: Panel) -> xr.DataTree:
        """Draw from the posterior of a model's parameters given the votes of a panel.

        Parameters
        ----------
        rng_key
            JAX random key.
        model
            Measurement model.
        panel
            Votes.

        Returns
        -------
        xarray.DataTree
            ArviZ groups posterior, sample_stats, log_likelihood (per voted cell), log_prior, observed_data and
            constant_data; see `assemble_fit`.

        Raises
        ------
        InputError
            The model cannot be prepared for the panel.
        """
        prepared = model.prepare(panel)
        use_compilation_cache()
        metric = whitening(model, prepared) if self.metric == "laplace" else None
        depths = (min(self.max_warmup_tree_depth, self.max_tree_depth), self.max_tree_depth)
        kernel = Kernel(self.num_warmup, self.target_accept_prob, depths, self.metric == "dense")
        with precision(self.floats):
            data = jax.tree.map(jnp.asarray, prepared.data)
            start_key, run_key, effect_key = jax.random.split(rng_key, 3)
            centre = model_centre(model, data)
            start = _jittered(centre, jax.random.split(start_key, self.num_chains))
            if metric is not None:
                start = jnp.asarray(np.linalg.solve(metric.factor, (np.asarray(start) - metric.mean).T).T, start.dtype)
                metric = jax.tree.map(lambda x: jnp.asarray(x, start.dtype), metric)
            keys = jax.random.split(run_key, self.num_chains)
            target = Target(model, data, centre, metric)
            with sampling_progress(self.num_warmup, self.num_samples, self.num_chains, show=self.progress) as report:
                draws = run_chains(kernel, target, start, keys, self.num_samples, self.chain_method, report)
            sites = constrain(model, data, centre, jnp.asarray(draws.x))
        return assemble_fit(
            effect_key,
            model,
            prepared,
            panel,
            {name: np.asarray(sites[name]) for name in prepared.dims},
            sample_stats=draws.stats(),
            attrs={"inference": type(self).__name__, "inference_settings": asdict(self)},
            floats=self.floats,
        )


@jax.jit
def _jittered(centre: Params, keys: Array) -> Array:
    """Unconstrained starts ``[chain, coordinate]`` about a centre."""
    flat, _ = ravel_pytree(centre)
    return flat + jax.vmap(lambda key: jax.random.uniform(key, flat.shape, flat.dtype, -JITTER, JITTER))(keys)
