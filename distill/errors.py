"""The errors that users see, and how a library's message becomes one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from evalkit.core.errors import EvalkitError
from evalkit.core.files import writing

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DistillError",
    "EvalkitError",
    "NonFiniteError",
    "at",
    "first_line",
    "require_finite",
    "saving",
]


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


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """`evalkit.core.files.writing`, for what safetensors writes too.

    Raises:
        EvalkitError: the disk is full, or may not be written to.
    """
    with writing(path):
        try:
            yield
        except SafetensorError as error:
            raise OSError(first_line(error)) from None


def first_line(error: BaseException) -> str:
    """The first line of what a library said; its type where it said nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
