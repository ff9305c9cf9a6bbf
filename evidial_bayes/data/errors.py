"""The one exception that a user sees as a sentence."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message names the file, row, column and value at fault and what is allowed instead. The command line prints
    it without a traceback and exits with code 2.
    """


def suggest(value: str, allowed: Iterable[str]) -> str:
    """Nearest allowed spelling as a sentence to append to an error, or an empty string.

    Parameters
    ----------
    value
        What was given.
    allowed
        What would have been accepted.

    Returns
    -------
    str
        `` Did you mean 'x'?`` with a leading blank, or ``""`` when nothing is close.
    """
    near = difflib.get_close_matches(str(value), [str(a) for a in allowed], n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
