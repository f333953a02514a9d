"""The errors that users see, and how a library's message becomes one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evalkit.core.errors import EvalkitError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DistillError", "EvalkitError", "NonFiniteError", "at", "first_line", "require_finite"]


class DistillError(EvalkitError):
    """Something the user can mend: printed as one line, exit code 2, no traceback."""


class NonFiniteError(DistillError):
    """A number that is NaN or infinite; whoever knows the place puts it in front (`at`)."""


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put a place, such as ``step 3`` or ``layer 8``, in front of a `NonFiniteError`."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"{place}: {error}") from None


def require_finite(tensor: Tensor, what: str) -> None:
    """Refuse NaN and infinite values, without a temporary of the tensor's size.

    Raises:
        NonFiniteError: the message says of what, and which of the two.
    """
    if not tensor.numel() or not tensor.is_floating_point() or tensor.itemsize == 1:
        return  # integers, and FP8, which is checked where it is dequantised
    low, high = tensor.detach().aminmax()  # both are NaN where any value is
    if not bool(low.isfinite() & high.isfinite()):
        kind = "NaN" if bool(low.isnan()) else "infinite"
        raise NonFiniteError(f"{what}: {kind} values")


def first_line(error: BaseException) -> str:
    """The first line of what a library said; its type where it said nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
