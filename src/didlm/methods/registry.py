"""All methods by name: ours, and those that other packages bring as entry points."""

from difflib import get_close_matches
from importlib.metadata import entry_points

from didlm.methods.ar import AR
from didlm.methods.did import DID, FixedDID
from didlm.methods.ilm import ILM
from didlm.methods.method import Method
from didlm.methods.radd import RADD

GROUP = "didlm.methods"  # of entry points: a name, and the class of its method
OURS: dict[str, type[Method]] = {method.name: method for method in (DID, FixedDID, RADD, ILM, AR)}


def method_names() -> list[str]:
    """Ours first."""
    return [*OURS, *sorted({point.name for point in entry_points(group=GROUP)} - set(OURS))]


def find_method(name: str) -> type[Method]:
    """The class of a method.

    Raises:
        ValueError: for an unknown name, with the nearest known one.
    """
    if name in OURS:
        return OURS[name]
    for point in entry_points(group=GROUP):
        if point.name == name:
            method = point.load()
            if not (isinstance(method, type) and issubclass(method, Method)):
                raise ValueError(f"the entry point '{name}' of {GROUP} is no method")
            return method
    names = method_names()
    near = get_close_matches(name, names, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(names)}"
    raise ValueError(f"there is no method '{name}': {hint}")
