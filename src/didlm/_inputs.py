"""Reading what users hand in: lists, numpy arrays or tensors, checked once at the door."""

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

IntArray = np.ndarray[tuple[int], np.dtype[np.int64]]
BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]
FloatArray = np.ndarray[tuple[int], np.dtype[np.float64]]

if TYPE_CHECKING:
    import torch

    Integers = Sequence[int] | np.ndarray | torch.Tensor
    Booleans = Sequence[bool] | np.ndarray | torch.Tensor
else:  # torch takes seconds to import, and processes that only tokenize do without it
    Integers = Booleans = Any


def integers(values: Integers, name: str) -> np.ndarray:
    """A one-dimensional int64 array, or a ValueError that names what is wrong."""
    array = _one_dimensional(values, name)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be integers: got {array.dtype}")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} has {array.max()} at position {array.argmax()}: too large")
    return array.astype(np.int64)


def token_ids(values: Integers, name: str) -> np.ndarray:
    """A one-dimensional int64 array of ids, none of them negative."""
    array = integers(values, name)
    if array.size and array.min() < 0:
        at = int(array.argmin())
        raise ValueError(f"{name} has a negative id, {array[at]}, at position {at}")
    return array


def booleans(values: Booleans, name: str) -> np.ndarray:
    """A one-dimensional boolean array; ones and zeros are refused, for they may be positions."""
    array = _one_dimensional(values, name)
    if array.size and array.dtype != np.bool_:
        raise ValueError(f"{name} must be booleans: got {array.dtype}")
    return array.astype(np.bool_)


def same_length(array: np.ndarray, name: str, other: np.ndarray, other_name: str) -> None:
    """Refuse two arrays that should go together and do not."""
    if array.size != other.size:
        raise ValueError(f"{name} has {array.size} entries, but {other_name} has {other.size}")


def _one_dimensional(values: Any, name: str) -> np.ndarray:
    try:
        torch = sys.modules.get("torch")  # before it is imported there are no tensors
        if torch and isinstance(values, torch.Tensor):
            values = values.detach().cpu().numpy()
        array = np.asarray(values)
    except (TypeError, NotImplementedError):
        raise ValueError(f"{name} must be a plain tensor of integers or booleans") from None
    except ValueError:
        raise ValueError(
            f"{name} must be one-dimensional: its rows have different lengths"
        ) from None
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional: got shape {array.shape}")
    return array


def whole_number(value: object, name: str) -> int:
    """The value as an int; refuse what is no whole number.

    Raises:
        ValueError: naming it.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name} must be a whole number: got {value!r}") from None
