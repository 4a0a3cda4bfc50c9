"""The kinds of experiments by name; each is imported only when it is done."""

from collections.abc import Callable
from importlib import import_module

from didlm.reproduce.experiment import Experiment
from didlm.reproduce.table import Outcome
from didlm.reproduce.workshop import Workshop

KINDS = {
    "perplexity": "perplexity:perplexities",
    "generation": "generation:generation",
    "lengths": "lengths:lengths",
    "curves": "curves:curves",
    "speed": "speed:speed",
    "targets": "targets:targets",
    "sizes": "sizes:sizes",
    "downstream": "downstream:downstream",
    "gsm8k": "gsm8k:gsm8k",
    "listing": "listing:listing",
}
ANYWHERE = {"sizes", "targets"}  # what is counted, and what is timed on a processor in any case
JUDGED = {"generation", "lengths", "listing"}  # samples, by a language model


def needs_device(name: str) -> bool:
    """Whether such experiments run on the device that is asked for."""
    return name not in ANYWHERE


def kind(name: str) -> Callable[[Workshop, Experiment], Outcome]:
    """The function that does such experiments."""
    module, _, function = KINDS[name].partition(":")
    found: Callable[[Workshop, Experiment], Outcome] = getattr(
        import_module(f"didlm.reproduce.{module}"), function
    )
    return found
