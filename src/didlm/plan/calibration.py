"""What a GPU achieves in our steps: fitted to recorded ones by benchmarks/calibrate.py."""

import math
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from importlib import resources
from typing import Any

DEFAULT = "h200"


@dataclass(frozen=True)
class Rates:
    """How fast everything goes; infinite where it takes no time that could be told apart."""

    product_flops: float  # TFLOP/s of the matrix products of the body
    attention_flops: float  # TFLOP/s within attention
    attention_bytes: float  # TB/s of what attention reads and writes
    pass_bytes: float  # TB/s of elementwise passes
    head_flops: float  # TFLOP/s of the products of the token head
    head_bytes: float  # TB/s of what it reads and writes
    optimiser_bytes: float  # TB/s of clipping, AdamW and the average
    kernels: float  # millions a second in a captured graph

    def seconds(self, amounts: dict[str, float]) -> float:
        """How long so much of everything takes."""
        per_second = {name: _UNIT[name] * rate for name, rate in asdict(self).items()}
        return sum(much / per_second[what] for what, much in amounts.items())


_UNIT = {f.name: 1e6 if f.name == "kernels" else 1e12 for f in fields(Rates)}
OF_PRODUCTS = ("product_flops", "attention_flops", "head_flops")
OF_MEMORY = ("attention_bytes", "pass_bytes", "head_bytes", "optimiser_bytes")


@dataclass(frozen=True)
class Calibration:
    """A GPU and its rates."""

    gpu: str
    memory_gib: float | None  # that it has
    tflops: float  # of its data sheet: dense products in bfloat16
    bandwidth: float  # TB/s of its data sheet
    rates: Rates
    host: float | None  # kernels that the host starts a second, in thousands, without a graph
    fitted: dict[str, Any]  # to what, when, how well
    described: bool = False  # by a data sheet alone: rates are those of another, scaled

    def scaled(
        self, tflops: float | None, bandwidth: float | None, memory: float | None
    ) -> "Calibration":
        """A GPU that was never measured: it is taken to achieve as much of its data sheet.

        Raises:
            ValueError: if only one of the two rates is known, or one is not positive.
        """
        if tflops is None and bandwidth is None:
            if memory is not None:
                raise ValueError("--memory goes with --tflops and --bandwidth of another GPU")
            return self
        if tflops is None or bandwidth is None:
            raise ValueError("a GPU is described by both --tflops and --bandwidth")
        for name, value in (("tflops", tflops), ("bandwidth", bandwidth), ("memory", memory)):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} must be positive: got {value:g}")
        faster = dict.fromkeys(OF_PRODUCTS, tflops / self.tflops)
        faster |= dict.fromkeys(OF_MEMORY, bandwidth / self.bandwidth)
        rates = {name: faster.get(name, 1.0) * rate for name, rate in asdict(self.rates).items()}
        return replace(
            self,
            gpu=f"a GPU of {tflops:g} TFLOP/s and {bandwidth:g} TB/s",
            memory_gib=memory,
            tflops=tflops,
            bandwidth=bandwidth,
            rates=Rates(**rates),
            described=True,
        )


def calibrated() -> list[str]:
    """The names of the GPUs that were measured."""
    files = resources.files("didlm.plan").iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def calibration(name: str = DEFAULT) -> Calibration:
    """What a GPU achieves, by its name.

    Raises:
        ValueError: if it was never measured.
    """
    known = calibrated()
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"only {', '.join(known)} was"
        raise ValueError(
            f"the GPU '{name}' was never measured: {hint} "
            "(others can be described with --tflops and --bandwidth)"
        )
    file = resources.files("didlm.plan") / f"{name.lower()}.toml"
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    gpu = {"host": None} | values["gpu"]
    return Calibration(**gpu, rates=Rates(**values["rates"]), fitted=values["fitted"])
