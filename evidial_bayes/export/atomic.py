"""Files that are either whole or not there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Lend a temporary sibling to write to, and rename it onto ``path`` once the block has ended well.

    The sibling is flushed to disk before it is renamed, so that a crash, a full disk or an interrupt leaves
    the old file or none, never half a file, under the final name. When the block raises, the sibling is
    removed and the exception goes on.

    Parameters
    ----------
    path
        Final name. Its folder is created when it is missing; an existing file is replaced.

    Yields
    ------
    pathlib.Path
        A hidden name in the same folder with the same suffix (libraries choose their format by it).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sibling = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        yield sibling
        _flush(sibling)
        sibling.replace(path)
        _flush(path.parent)
    finally:
        sibling.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Push a file's bytes, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
