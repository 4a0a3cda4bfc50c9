"""What every method makes of texts: tokens to read, and sparse weighted targets. Never losses.

Legend: S sequences, T rows (tokens and the gaps after them), K token targets, all numpy, made in a
loader worker. The one loss of all methods (`didlm.loss`) reads nothing else.
"""

from dataclasses import dataclass, fields, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Examples:
    """Noised texts, end to end, with what the network should say about them.

    All targets carry the weight of their state already: a sum over them is a cost in nats.
    """

    tokens: np.ndarray  # [T] BOS and what is left of each text
    given: np.ndarray  # [T] bool: never deleted
    open: np.ndarray  # [T] bool: tokens may be missing after this row
    count: np.ndarray  # [T] weighted number of tokens missing after this row
    count_weight: np.ndarray  # [T] weight of the rate of this row; 0 where the gap is closed
    deleted: np.ndarray  # [S] the probability of deletion u
    constant: np.ndarray  # [S] the part of the cost that no network changes
    complete: np.ndarray  # [S] 1 if nothing is missing, else 0: what a stop head should say
    complete_weight: np.ndarray  # [S] how much that counts; 0 for methods without one
    number: np.ndarray  # [S] of the example, or of the document it is a state of
    offsets: np.ndarray  # [S + 1] into the rows
    row: np.ndarray  # [K] ascending
    token: np.ndarray  # [K]
    target: np.ndarray  # [K] weighted number of these tokens missing there

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.offsets) - 1

    def part(self, first: int, last: int) -> "Examples":
        """The sequences from first up to, but not including, last."""
        rows = slice(self.offsets[first], self.offsets[last])
        targets = slice(*np.searchsorted(self.row, (rows.start, rows.stop)))
        values = {}
        for field in fields(self):
            value = getattr(self, field.name)
            span = {"t": rows, "s": slice(first, last), "k": targets}[_AXIS[field.name]]
            values[field.name] = value[span]
        values["offsets"] = self.offsets[first : last + 1] - rows.start
        values["row"] = values["row"] - rows.start
        return Examples(**values)

    def scaled(self, factor: float) -> "Examples":
        """The same examples, all of whose costs count `factor` times as much."""
        names = ("count", "count_weight", "constant", "complete_weight", "target")
        return replace(self, **{name: getattr(self, name) * factor for name in names})

    @staticmethod
    def join(parts: list["Examples"]) -> "Examples":
        """Several sets of examples, one after the other."""
        starts = np.cumsum([0, *(len(part.tokens) for part in parts)])
        values = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Examples)
        }
        values["offsets"] = np.concatenate(
            [[0], *(part.offsets[1:] + start for part, start in zip(parts, starts, strict=False))]
        )
        values["row"] = np.concatenate(
            [part.row + start for part, start in zip(parts, starts, strict=False)]
        )
        return Examples(**values)


_AXIS = dict.fromkeys(("tokens", "given", "open", "count", "count_weight"), "t")
_AXIS |= dict.fromkeys(
    ("deleted", "constant", "complete", "complete_weight", "number", "offsets"), "s"
)
_AXIS |= dict.fromkeys(("row", "token", "target"), "k")
