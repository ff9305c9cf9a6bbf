"""The No-U-Turn sampler, through NumPyro's kernel."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from jax.sharding import PartitionSpec
from numpyro.infer.hmc import HMCState, hmc
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.panel import Panel
from evidial_bayes.inference.compilation import Precision, precision, use_compilation_cache
from evidial_bayes.inference.progress import sampling_progress
from evidial_bayes.inference.result import assemble_fit
from evidial_bayes.models.base import MeasurementModel, Params

ChainMethod = Literal["vectorized", "parallel", "sequential"]
# Steps between two looks at the progress bar; one program serves every chunk, warm-up included.
CHUNK = 50
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
        ``vectorized`` runs all chains in one program, ``parallel`` spreads them over JAX's devices (with a single
        device it is the same as ``vectorized``), ``sequential`` runs one after the other.
    target_accept_prob
        Acceptance probability that step-size adaptation aims at.
    max_tree_depth, max_warmup_tree_depth
        A trajectory has at most ``2**depth − 1`` leapfrog steps. During warm-up shorter ones do: before the mass matrix
        is known, long trajectories cost most of the time and teach little.
    dense_mass
        Adapt a dense instead of a diagonal mass matrix.
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
    chain_method: ChainMethod = "vectorized"
    target_accept_prob: float = 0.9
    max_tree_depth: int = 10
    max_warmup_tree_depth: int = 6
    dense_mass: bool = False
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
        for name, allowed in (("chain_method", get_args(ChainMethod)), ("floats", ("float64", "float32"))):
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
        depths = (min(self.max_warmup_tree_depth, self.max_tree_depth), self.max_tree_depth)
        kernel = _Kernel(self.num_warmup, self.target_accept_prob, depths, self.dense_mass, self.chain_method)
        with precision(self.floats):
            data = jax.tree.map(jnp.asarray, prepared.data)
            start_key, run_key, effect_key = jax.random.split(rng_key, 3)
            start = _start(model, data, jax.random.split(start_key, self.num_chains))
            state = _adapt(kernel, model, data, start, jax.random.split(run_key, self.num_chains))
            with sampling_progress(self.num_warmup, self.num_samples, show=self.progress) as report:
                state, _ = _steps(kernel, model, data, state, self.num_warmup, report)
                state, draws = _steps(kernel, model, data, state, self.num_samples, report)
            sites = _constrain(model, data, draws.z)
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


class _Kernel(NamedTuple):
    """What the compiled program depends on, besides the shapes of model and data."""

    num_warmup: int
    target_accept_prob: float
    max_tree_depth: tuple[int, int]
    dense_mass: bool
    chain_method: ChainMethod


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _Draws:
    """Steps of all chains, ``[chain, draw, ...]``."""

    z: Params
    potential_energy: Array
    energy: Array
    num_steps: Array
    accept_prob: Array
    diverging: Array
    step_size: Array

    @classmethod
    def of(cls, state: HMCState) -> "_Draws":
        """Take what is kept of one state."""
        return cls(
            z=state.z,
            potential_energy=state.potential_energy,
            energy=state.energy,
            num_steps=state.num_steps,
            accept_prob=state.accept_prob,
            diverging=state.diverging,
            step_size=state.adapt_state.step_size,
        )

    def stats(self) -> dict[str, np.ndarray]:
        """Sampler statistics under ArviZ's names, ``[chain, draw]``."""
        num_steps = np.asarray(self.num_steps)
        return {
            "lp": -np.asarray(self.potential_energy),
            "energy": np.asarray(self.energy),
            "n_steps": num_steps,
            "tree_depth": np.ceil(np.log2(num_steps + 1)).astype(np.int64),
            "acceptance_rate": np.asarray(self.accept_prob),
            "diverging": np.asarray(self.diverging),
            "step_size": np.asarray(self.step_size),
        }


@jax.jit
def _start(model: MeasurementModel, data: Any, keys: Array) -> Params:
    """Start every chain at the model's centre, jittered in unconstrained space: ``[chain, ...]``."""
    centre = unconstrain_fn(model, (data,), {}, model.initial(data))

    def jitter(key: Array) -> Params:
        leaves, structure = jax.tree.flatten(centre)
        moved = [
            leaf + jax.random.uniform(k, leaf.shape, leaf.dtype, -JITTER, JITTER)
            for k, leaf in zip(jax.random.split(key, len(leaves)), leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, moved)

    return jax.vmap(jitter)(keys)


def _sampler(kernel: _Kernel, model: MeasurementModel, data: Any) -> tuple[Callable, Callable]:
    """NumPyro's NUTS for the model's potential, as functions of nothing but states."""
    init, step = hmc(potential_fn=lambda z: potential_energy(model, (data,), {}, z), algo="NUTS")

    def initialise(z: Params, key: Array) -> HMCState:
        return init(
            z,
            kernel.num_warmup,
            dense_mass=kernel.dense_mass,
            target_accept_prob=kernel.target_accept_prob,
            max_tree_depth=kernel.max_tree_depth,
            rng_key=key,
        )

    return initialise, step


def _over_chains(kernel: _Kernel, one_chain: Callable, *chains: Any) -> Any:
    """Apply a function of one chain to all of them, the way that ``chain_method`` says."""
    if kernel.chain_method == "sequential":
        return jax.lax.map(lambda leaves: one_chain(*leaves), chains)
    every = jax.vmap(one_chain)
    n_chains = jax.tree.leaves(chains)[0].shape[0]
    devices = max(n for n in range(1, jax.local_device_count() + 1) if n_chains % n == 0)
    if kernel.chain_method == "vectorized" or devices == 1:
        return every(*chains)
    mesh = jax.make_mesh((devices,), ("chain",), devices=jax.local_devices()[:devices])
    spec = PartitionSpec("chain")
    # Each device has a loop of its own: no chain waits for a longer trajectory on another device.
    return jax.shard_map(every, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(*chains)


@partial(jax.jit, static_argnames="kernel")
def _adapt(kernel: _Kernel, model: MeasurementModel, data: Any, start: Params, keys: Array) -> HMCState:
    """Sampler states before the first step, ``[chain, ...]``."""
    initialise, _ = _sampler(kernel, model, data)
    return _over_chains(kernel, initialise, start, keys)


@partial(jax.jit, static_argnames="kernel")
def _advance(
    kernel: _Kernel, model: MeasurementModel, data: Any, state: HMCState, length: Array
) -> tuple[HMCState, _Draws]:
    """Take ``length`` steps, at most `CHUNK`, and return them in the first rows of arrays of `CHUNK` rows."""
    initialise, step = _sampler(kernel, model, data)

    def one_chain(state: HMCState) -> tuple[HMCState, _Draws]:
        # NumPyro's step reads its settings from a closure that initialising fills in; the result is unused.
        initialise(state.z, state.rng_key)
        rows = jax.tree.map(lambda x: jnp.zeros((CHUNK, *jnp.shape(x)), jnp.result_type(x)), _Draws.of(state))

        def body(i: Array, carry: tuple[HMCState, _Draws]) -> tuple[HMCState, _Draws]:
            state, rows = carry
            state = step(state, (), {})
            return state, jax.tree.map(lambda row, x: row.at[i].set(x), rows, _Draws.of(state))

        return jax.lax.fori_loop(0, length, body, (state, rows))

    return _over_chains(kernel, one_chain, state)


def _steps(
    kernel: _Kernel,
    model: MeasurementModel,
    data: Any,
    state: HMCState,
    num_steps: int,
    report: Callable[[int, np.ndarray, int], None],
) -> tuple[HMCState, _Draws]:
    """Take many steps in chunks, reporting after each."""
    chunks = []
    for done in range(0, num_steps, CHUNK):
        length = min(CHUNK, num_steps - done)
        state, rows = _advance(kernel, model, data, state, jnp.asarray(length))
        rows = jax.tree.map(lambda x, n=length: np.asarray(x)[:, :n], rows)
        report(length, rows.step_size[:, -1], int(rows.diverging.sum()))
        chunks.append(rows)
    return state, jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *chunks)


@jax.jit
def _constrain(model: MeasurementModel, data: Any, z: Params) -> Params:
    """Sites of the program at unconstrained draws: ``[chain, draw, ...]``."""
    chains, draws = jax.tree.leaves(z)[0].shape[:2]
    flat = jax.tree.map(lambda x: x.reshape(chains * draws, *x.shape[2:]), z)
    sites = jax.lax.map(
        lambda one: constrain_fn(model, (data,), {}, one, return_deterministic=True), flat, batch_size=64
    )
    return jax.tree.map(lambda x: x.reshape(chains, draws, *x.shape[1:]), sites)
