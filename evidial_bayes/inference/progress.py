"""Progress bars of samplers and searches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

type Report = Callable[[int, np.ndarray, int], None]


@contextmanager
def sampling_progress(num_warmup: int, num_samples: int, *, show: bool) -> Iterator[Report]:
    """Show how far all chains are, their step sizes, divergences after warm-up, and the time left.

    Parameters
    ----------
    num_warmup, num_samples
        Steps of every chain.
    show
        Show the bar. Whatever is said here, nothing is shown where the error stream is no terminal.

    Yields
    ------
    callable
        ``report(steps, step_size[chain], n_divergences)``, to be called after some steps.
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
    done = 0
    divergences = 0
    with bar:
        task = bar.add_task("compiling", total=num_warmup + num_samples, state="")

        def report(steps: int, step_size: np.ndarray, n_divergences: int) -> None:
            nonlocal done, divergences
            done += steps
            warming = done <= num_warmup
            divergences += 0 if warming else n_divergences
            sizes = " ".join(f"{size:.2g}" for size in step_size[:8])
            bar.update(
                task,
                advance=steps,
                description="warm-up" if warming else "sampling",
                state=f"step size {sizes}{' …' if len(step_size) > 8 else ''}, {divergences} divergences",
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
