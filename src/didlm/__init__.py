"""didlm: deletion-insertion diffusion language models.

Read the package in the order a text travels through it: `schedule` says how fast tokens disappear,
`deletion` removes them, `packed` holds what is left, `alignment` says exactly what is missing and
where, `objectives` turns that into a loss. `laboratory` proves it all on tiny alphabets.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_SUBMODULES = ("alignment", "deletion", "given", "laboratory", "objectives", "packed", "schedule")
__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> ModuleType:
    """Import submodules on first use, so that `import didlm` and `didlm --help` stay quick."""
    if name in _SUBMODULES:
        return importlib.import_module(f"didlm.{name}")
    raise AttributeError(f"module 'didlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
