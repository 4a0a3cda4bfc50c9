"""didlm: deletion-insertion diffusion language models.

Read the package in the order a text travels through it: `schedule` says how fast tokens disappear,
`deletion` removes them, `packed` holds what is left, `alignment` says exactly what is missing and
where, `objectives` turns that into a loss; `laboratory` proves it all on tiny alphabets. Then
`data` makes batches of it, `model` reads them, `train` learns, `generate` writes.
`didlm.load(path)` is a trained model.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_SUBMODULES = (
    "alignment",
    "data",
    "deletion",
    "evaluate",
    "generate",
    "given",
    "laboratory",
    "loss",
    "methods",
    "model",
    "objectives",
    "packed",
    "schedule",
    "train",
)
_PRETRAINED = ("Model", "load")
__all__ = ["__version__", *_SUBMODULES, *_PRETRAINED]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import didlm` and `didlm --help` stay quick."""
    if name in _SUBMODULES:
        return importlib.import_module(f"didlm.{name}")
    if name in _PRETRAINED:
        return getattr(importlib.import_module("didlm.pretrained"), name)
    raise AttributeError(f"module 'didlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
