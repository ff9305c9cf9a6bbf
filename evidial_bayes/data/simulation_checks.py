"""Checks of simulation settings: each returns the value, or names the setting and what it may be."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real

from evidial_bayes.data.errors import InputError, suggest


def refusal(field: str, value: object, allowed: str, hint: str = "") -> InputError:
    """Say which setting has which value, and what is allowed."""
    return InputError(f"simulation setting '{field}' is {value!r}; allowed: {allowed}.{hint}")


def check_share(field: str, value: object) -> float:
    """Return a number from 0 to 1."""
    number = _number(value)
    if not 0 <= number <= 1:
        raise refusal(field, value, "a number from 0 to 1")
    return number


def check_positive(field: str, value: object, *, zero: bool = False) -> float:
    """Return a finite number above zero, or of at least zero."""
    number = _number(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise refusal(field, value, f"a finite number {'of at least' if zero else 'above'} 0")
    return number


def check_finite(field: str, value: object) -> float:
    """Return a finite number."""
    number = _number(value)
    if not math.isfinite(number):
        raise refusal(field, value, "a finite number")
    return number


def check_count(field: str, value: object, low: int, high: int | None = None) -> int:
    """Return a whole number in the range."""
    whole = low - 1 if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if whole < low or (high is not None and whole > high):
        raise refusal(field, value, f"a whole number from {low}" + (" up" if high is None else f" to {high}"))
    return whole


def check_distribution(field: str, value: object) -> tuple[float, ...]:
    """Return shares that sum to one, given as a sequence or as a mapping's values."""
    if isinstance(value, Mapping):
        given = tuple(value.values())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        given = tuple(value)
    else:
        raise refusal(field, value, "shares that sum to 1")
    shares = tuple(check_share(field, share) for share in given)
    if abs(sum(shares) - 1) > 1e-6:
        raise refusal(field, value, f"shares that sum to 1, while these sum to {sum(shares):.6g}")
    return shares


def check_names(field: str, names: Iterable[str], allowed: Sequence[str], what: str) -> None:
    """Refuse a name that is not the codebook's, with the nearest one that is."""
    for name in names:
        if name not in allowed:
            raise refusal(field, name, f"the codebook's {what}: {', '.join(allowed)}", suggest(name, allowed))


def check_keys(where: str, keys: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse a key that is no setting, with the nearest one that is."""
    for key in keys:
        if key not in allowed:
            hint = suggest(key, allowed)
            raise InputError(f"{where}: '{key}' is no simulation setting; allowed: {', '.join(allowed)}.{hint}")


def check_complete(field: str, mapping: object, keys: Sequence[str]) -> None:
    """Refuse anything but a mapping with exactly these keys."""
    if not isinstance(mapping, Mapping) or set(mapping) != set(keys):
        value = list(mapping) if isinstance(mapping, Mapping) else mapping
        raise refusal(field, value, f"a mapping with exactly the keys {', '.join(keys)}")


def _number(value: object) -> float:
    """Convert a number to float, anything else to NaN, which no range holds."""
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
