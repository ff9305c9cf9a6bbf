"""Progress bars of samplers and searches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

type Report = Callable[[int, int, np.ndarray, int], None]


@contextmanager
def sampling_progress(num_warmup: int, num_samples: int, num_chains: int, *, show: bool) -> Iterator[Report]:
    """Show how far all chains are, their step sizes, divergences after warm-up, and the time left.

    Parameters
    ----------
    num_warmup, num_samples
        Steps of every chain.
    num_chains
        Number of chains.
    show
        Show the bar. Whatever is said here, nothing is shown where the error stream is no terminal.

    Yields
    ------
    callable
        ``report(first_chain, steps, step_size[chain], n_divergences)``, to be called after some steps of one chain or
        of several neighbours, from any thread.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (show and console.is_terminal),
    )
    done = np.zeros(num_chains, dtype=np.int64)
    sizes = np.full(num_chains, np.nan)
    divergences = 0
    lock = Lock()
    with bar:
        task = bar.add_task("compiling", total=(num_warmup + num_samples) * num_chains, state="")

        def report(first: int, steps: int, step_size: np.ndarray, n_divergences: int) -> None:
            nonlocal divergences
            with lock:
                chains = slice(first, first + len(step_size))
                done[chains] += steps
                sizes[chains] = step_size
                divergences += n_divergences
                shown = " ".join("–" if np.isnan(size) else f"{size:.2g}" for size in sizes[:8])
                bar.update(
                    task,
                    completed=int(done.sum()),
                    description="warm-up" if done.min() <= num_warmup else "sampling",
                    state=f"step size {shown}{' …' if num_chains > 8 else ''}, {divergences} divergences",
                )

        yield report


@contextmanager
def search_progress(num_starts: int, *, show: bool) -> Iterator[Callable[[float], None]]:
    """Show how many starts of a search are done, and the best log density so far; shown as `sampling_progress` is.

    Yields
    ------
    callable
        ``report(best log density)``, to be called after each start.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("searching"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not (show and console.is_terminal),
    )
    with bar:
        task = bar.add_task("searching", total=num_starts, state="")
        yield lambda best: bar.update(task, advance=1, state=f"best log density {best:.3f}")
