"""What a GPU achieves: fits the rates of `didlm plan` to recorded training steps.

    python benchmarks/calibrate.py

Reads results/gpu_train.csv and writes src/didlm/plan/<gpu>.toml: least squares in relative errors
of the step and of its parts, over the newest captured steps of every case, in which no product is
faster than the ceiling of the same runs, and no byte than the data sheet allows. What is fitted are
seconds per operation, byte and kernel; how many of these there are is counted
(`didlm.plan.counting`). Then it prints what the plan says beside what was measured.
"""

import math
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from didlm.plan.calibration import OF_PRODUCTS, Calibration, Rates
from didlm.plan.case import Case
from didlm.plan.counting import PARTS, kernels_of, work_of
from didlm.plan.memory import GIB
from didlm.plan.planning import plan_of
from gpu import MEAN
from recorded import Recorded, number, training_steps

PACKAGE = Path(__file__).parents[1] / "src/didlm/plan"
TERMS = [field.name for field in fields(Rates)]
UNITS = np.array([1e6 if term == "kernels" else 1e12 for term in TERMS])
# Which parts of the work a column times, and how much it counts against the others.
COLUMNS = {
    "step_ms": (PARTS, 3.0),
    "body_ms": (("products", "attention", "passes"), 1.0),
    "attention_ms": (("attention",), 1.0),
    "head_ms": (("head",), 1.0),
    "optimiser_ms": (("optimiser",), 0.5),
}
# Data sheets: memory as torch reports it in GiB, TFLOP/s of dense bf16 products, TB/s.
SHEETS = {"NVIDIA H200": (139.8, 989.0, 4.8)}


def main() -> None:
    """Fit, write, compare."""
    rows, eager = training_steps(), training_steps(captured=False)
    if not rows:
        sys.exit("no captured step is recorded: run benchmarks/gpu_train.py on a GPU first")
    for gpu in sorted({row["gpu"] for row in rows}):
        own, own_eager = ([row for row in some if row["gpu"] == gpu] for some in (rows, eager))
        found = fit(gpu, own, own_eager)
        path = PACKAGE / f"{gpu.split()[-1].lower()}.toml"
        path.write_text(as_toml(found), encoding="utf-8")
        print(f"{path}\n{as_toml(found)}")
        compare(found, own)


def fit(gpu: str, rows: list[Recorded], eager: list[Recorded]) -> Calibration:
    """The rates of a GPU."""
    equations, weights = [], []
    for row in rows:
        work = work_of(case_of(row))
        for column, (parts, weight) in COLUMNS.items():
            milliseconds = number(row, column)
            if milliseconds:
                amounts = [sum(work[part].get(term, 0.0) for part in parts) for term in TERMS]
                equations.append(np.array(amounts) / UNITS / (milliseconds / 1e3))
                weights.append(weight)
    scale = np.array(weights)
    if gpu not in SHEETS:
        raise ValueError(f"add the data sheet of {gpu} to SHEETS in {__file__}")
    memory, tflops, bandwidth = SHEETS[gpu]
    ceiling = max(float(row["ceiling_tflops"]) for row in rows)
    least = [1 / ceiling if term in OF_PRODUCTS else 1 / bandwidth for term in TERMS]
    least[TERMS.index("kernels")] = 0.0
    costs = at_least(np.array(equations) * scale[:, None], scale, np.array(least))
    rates = dict(zip(TERMS, [1 / cost if cost > 0 else np.inf for cost in costs], strict=True))
    fitted: dict[str, Any] = {
        "rows": len(rows),
        "first": min(row["date"] for row in rows),
        "last": max(row["date"] for row in rows),
        "commits": ", ".join(sorted({row["commit"] for row in rows})),
        "torch": ", ".join(sorted({row["torch"] for row in rows})),
    }
    found = Calibration(gpu, memory, tflops, bandwidth, Rates(**rates), None, fitted)
    off = [errors(found, row) for row in rows]
    fitted["worst_time"], fitted["worst_memory"] = (
        math.ceil(100 * max(map(abs, some))) for some in zip(*off, strict=True)
    )
    return replace(found, host=host_rate(found, eager), fitted=fitted)


def errors(gpu: Calibration, row: Recorded) -> tuple[float, float]:
    """How far time and memory of the plan are off what was measured, relative to it."""
    plan = plan_of(case_of(row), gpu)
    time, gib = 1e3 * plan.step, plan.memory.total / GIB
    return time / float(row["step_ms"]) - 1, gib / float(row["peak_gib"]) - 1


def host_rate(gpu: Calibration, eager: list[Recorded]) -> float | None:
    """Thousands of kernels that the host starts a second, where it was slower than the GPU."""
    found = []
    for row in eager:
        case, seconds = case_of(row), float(row["step_ms"]) / 1e3
        if seconds > 1.25 * plan_of(case, gpu).step:
            found.append(kernels_of(work_of(case)) / seconds / 1e3)
    return float(np.median(found)) if found else None


def at_least(left: np.ndarray, right: np.ndarray, least: np.ndarray) -> np.ndarray:
    """The x >= least that minimises |left x - right|, one number after the other."""
    size = np.linalg.norm(left, axis=0)
    size[size == 0] = 1
    squares, aim, least = (left / size).T @ (left / size), (left / size).T @ right, least * size
    x = least.copy()
    for _ in range(20_000):
        for one in range(len(x)):
            x[one] = max(least[one], x[one] + aim[one] - squares[one] @ x)
    return x / size


def case_of(row: Recorded) -> Case:
    """What was trained in a recorded row."""
    return Case(
        method=row["method"],
        preset=row["preset"],
        context=int(row["context"]),
        batch=int(row["batch"]),
        vocabulary=int(row["vocabulary"]),
        mean_length=MEAN if row["what"] == "variable" else None,
    )


def as_toml(found: Calibration) -> str:
    """The file in which the package keeps a calibration."""
    gpu = {
        "gpu": f'"{found.gpu}"',
        "memory_gib": found.memory_gib,
        "tflops": found.tflops,
        "bandwidth": found.bandwidth,
        "host": None if found.host is None else f"{found.host:.3f}",
    }
    rates = {term: f"{getattr(found.rates, term):.5g}" for term in TERMS}
    # TOML tells whole numbers from others.
    rates = {
        term: v if "." in v or "inf" in v or "e" in v else v + ".0" for term, v in rates.items()
    }
    fitted = {k: v if isinstance(v, int) else f'"{v}"' for k, v in found.fitted.items()}
    lines = ["# Written by benchmarks/calibrate.py; what it means stands in calibration.py."]
    for title, values in (("gpu", gpu), ("rates", rates), ("fitted", fitted)):
        lines += ["", f"[{title}]"]
        lines += [f"{name} = {value}" for name, value in values.items() if value is not None]
    return "\n".join(lines[:1] + lines[2:]) + "\n"


def compare(gpu: Calibration, rows: list[Recorded]) -> None:
    """Print what is planned beside what was measured."""
    for row in rows:
        time, memory = errors(gpu, row)
        name = " ".join(row[x] for x in ("what", "method", "preset"))
        size = f"{row['batch']} x {row['context']}, {row['vocabulary']}"
        print(
            f"{name} {size}: {float(row['step_ms']):.1f} ms, planned {time:+.0%}; "
            f"{float(row['peak_gib']):.1f} GiB, planned {memory:+.0%}"
        )


if __name__ == "__main__":
    main()
