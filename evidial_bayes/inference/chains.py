"""Chains of NumPyro's No-U-Turn kernel, in whitened coordinates, on as many cores or devices as there are."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, PartitionSpec
from numpyro.infer.hmc import HMCState, hmc
from numpyro.infer.hmc_util import HMCAdaptState

from evidial_bayes.inference.compilation import precision
from evidial_bayes.inference.density import log_density
from evidial_bayes.inference.gaussian import Gaussian
from evidial_bayes.inference.progress import Report
from evidial_bayes.models.base import MeasurementModel, Params

ChainMethod = Literal["parallel", "vectorized", "sequential"]
# Steps between two looks at the progress bar; one program serves every chunk, warm-up included.
CHUNK = 50


class Kernel(NamedTuple):
    """What the compiled program depends on, besides the shapes of model and data."""

    num_warmup: int
    target_accept_prob: float
    max_tree_depth: tuple[int, int]
    dense_mass: bool


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Target:
    """A posterior density of coordinates ``u``, where ``x = metric.mean + metric.factor @ u``."""

    model: MeasurementModel
    data: Any
    centre: Params
    metric: Gaussian | None

    def unwhitened(self, u: Array) -> Array:
        """Unconstrained coordinates of whitened ones."""
        return u if self.metric is None else jnp.asarray(self.metric.mean) + jnp.asarray(self.metric.factor) @ u


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Draws:
    """Steps of chains, ``[chain, draw, ...]``."""

    x: Array
    potential_energy: Array
    energy: Array
    num_steps: Array
    accept_prob: Array
    diverging: Array
    step_size: Array

    @classmethod
    def of(cls, target: Target, state: HMCState) -> "Draws":
        """Take what is kept of one state."""
        return cls(
            x=target.unwhitened(state.z),
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


def run_chains(
    kernel: Kernel, target: Target, start: Array, keys: Array, num_samples: int, method: ChainMethod, report: Report
) -> Draws:
    """Warm up and sample.

    Parameters
    ----------
    kernel, target
        What to sample, and how.
    start
        Whitened coordinates ``[chain, coordinate]``.
    keys
        JAX random keys ``[chain]``.
    num_samples
        Draws of every chain after warm-up.
    method
        How chains share the machine; see `NUTS`.
    report
        Called after each chunk of steps of any chain.

    Returns
    -------
    Draws
        Those after warm-up.
    """
    lengths = _chunks(kernel.num_warmup), _chunks(num_samples)
    cpu = jax.default_backend() == "cpu"
    if method == "vectorized" or (method == "parallel" and not (cpu and jax.local_device_count() == 1)):
        devices = jax.local_device_count() if method == "parallel" else 1
        devices = max(n for n in range(1, devices + 1) if len(start) % n == 0)
        return _run(partial(_advance_all, devices=devices), kernel, target, start, keys, lengths, report, 0)
    # Compiled here, the program is found by every thread.
    jax.block_until_ready(_advance(kernel, target, _adapt(kernel, target, start[0], keys[0]), jnp.asarray(0)))
    # A program runs outside Python's lock, so that threads keep as many cores busy; more than there are would only
    # share them. Which thread runs a chain changes nothing in it.
    with ThreadPoolExecutor(1 if method == "sequential" else len(start)) as pool:
        # JAX's precision is a setting of each thread.
        single = start.dtype == jnp.float32

        def run(chain: int) -> Draws:
            with precision("float32" if single else "float64"):
                return _run(_advance, kernel, target, start[chain], keys[chain], lengths, report, chain)

        chains = pool.map(run, range(len(start)))
        return jax.tree.map(lambda *rows: np.stack(rows), *chains)


def _chunks(steps: int) -> list[int]:
    return [min(CHUNK, steps - done) for done in range(0, steps, CHUNK)]


def _run(
    advance: Callable, kernel: Kernel, target: Target, start: Array, keys: Array,
    lengths: tuple[list[int], list[int]], report: Report, first: int,
) -> Draws:  # fmt: skip
    """Take the steps of one chain, or of all; only those after warm-up are kept."""
    state, kept = _adapt(kernel, target, start, keys), []
    for warming, steps in zip((True, False), lengths, strict=True):
        for length in steps:
            state, rows = advance(kernel, target, state, jnp.asarray(length))
            rows = jax.tree.map(lambda x, n=length: np.moveaxis(np.asarray(x)[:n], 0, start.ndim - 1), rows)
            report(first, length, np.atleast_1d(rows.step_size[..., -1]), 0 if warming else int(rows.diverging.sum()))
            if not warming:
                kept.append(rows)
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=start.ndim - 1), *kept)


@jax.custom_jvp
def _potential(u: Array, target: Target) -> Array:
    return _potential_and_gradient(u, target)[0]


# The sampler differentiates its potential in half a dozen places; this way each is a call of one traced function.
@jax.jit
def _potential_and_gradient(u: Array, target: Target) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda u: -log_density(target.model, target.data, target.centre, target.unwhitened(u)))(u)


@_potential.defjvp
def _potential_jvp(primals: tuple[Array, Target], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    value, gradient = _potential_and_gradient(*primals)
    return value, gradient @ tangents[0]


def _sampler(kernel: Kernel, target: Target) -> tuple[Callable, Callable]:
    """NumPyro's NUTS for the target, as functions of nothing but states."""
    init, step = hmc(potential_fn=lambda u: _potential(u, target), algo="NUTS")

    def initialise(u: Array, key: Array) -> HMCState:
        return init(
            u,
            kernel.num_warmup,
            dense_mass=kernel.dense_mass,
            target_accept_prob=kernel.target_accept_prob,
            max_tree_depth=kernel.max_tree_depth,
            rng_key=key,
        )

    return initialise, step


@partial(jax.jit, static_argnames="kernel")
def _adapt(kernel: Kernel, target: Target, start: Array, keys: Array) -> HMCState:
    """Sampler state before the first step, of one chain or of all."""
    initialise, _ = _sampler(kernel, target)
    return (initialise if start.ndim == 1 else jax.vmap(initialise, out_axes=_per_chain(0, None)))(start, keys)


@partial(jax.jit, static_argnames="kernel")
def _advance(kernel: Kernel, target: Target, state: HMCState, length: Array) -> tuple[HMCState, Draws]:
    """Take ``length`` steps of a chain, at most `CHUNK`, and return them in the first rows of `CHUNK`."""
    return _loop(_step(kernel, target, state), state, length)


@partial(jax.jit, static_argnames=("kernel", "devices"))
def _advance_all(
    kernel: Kernel, target: Target, state: HMCState, length: Array, *, devices: int
) -> tuple[HMCState, Draws]:
    """As `_advance`, of all chains: rows are ``[row, chain, ...]``."""
    axes = _per_chain(0, None)

    def loop(target: Target, state: HMCState, length: Array) -> tuple[HMCState, Draws]:
        one = jax.tree.map(
            lambda axis, part: part if axis is None else jax.tree.map(lambda x: x[0], part),
            axes,
            state,
            is_leaf=lambda axis: axis is None,
        )
        # All chains are at the same step, so that what adapts at some steps only stays a branch.
        return _loop(jax.vmap(_step(kernel, target, one), in_axes=(axes,), out_axes=(axes, 0)), state, length)

    if devices == 1:
        return loop(target, state, length)
    mesh = jax.make_mesh((devices,), ("chain",), (AxisType.Auto,), devices=jax.local_devices()[:devices])
    chain, every = PartitionSpec("chain"), PartitionSpec()
    specs = _per_chain(chain, every)
    # Each device has a loop of its own: no chain waits for a longer trajectory on another device.
    return jax.shard_map(
        loop,
        mesh=mesh,
        in_specs=(every, specs, every),
        out_specs=(specs, PartitionSpec(None, "chain")),
        check_vma=False,
    )(target, state, length)


def _per_chain(chain: Any, every: Any) -> HMCState:
    """Say which parts of the sampler's state each chain has of its own: all but its counters."""
    adapt_state = HMCAdaptState(**dict.fromkeys(HMCAdaptState._fields, chain) | {"window_idx": every})
    return HMCState(**dict.fromkeys(HMCState._fields, chain) | {"i": every, "r": None, "adapt_state": adapt_state})


def _step(kernel: Kernel, target: Target, state: HMCState) -> Callable[[HMCState], tuple[HMCState, Draws]]:
    """One step of one chain, which has states like this one."""
    initialise, step = _sampler(kernel, target)
    # NumPyro's step reads its settings from a closure that initialising fills in.
    jax.eval_shape(initialise, state.z, state.rng_key)

    def moved(state: HMCState) -> tuple[HMCState, Draws]:
        state = step(state, (), {})
        return state, Draws.of(target, state)

    return moved


def _loop(step: Callable, state: HMCState, length: Array) -> tuple[HMCState, Draws]:
    rows = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), jax.eval_shape(step, state)[1])

    def body(i: Array, carry: tuple[HMCState, Draws]) -> tuple[HMCState, Draws]:
        state, rows = carry
        state, row = step(state)
        return state, jax.tree.map(lambda all_rows, x: all_rows.at[i].set(x), rows, row)

    return jax.lax.fori_loop(0, length, body, (state, rows))
