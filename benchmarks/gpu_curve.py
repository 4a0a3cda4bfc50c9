"""Does a GPU in bf16 learn what a CPU learns in float32? The same seeds, the same examples.

    python benchmarks/gpu_curve.py --device cpu
    python benchmarks/gpu_curve.py --device cuda
    python benchmarks/gpu_curve.py --plot

Runs of `didlm train` on the embedded stories, two seeds with each optimiser; their losses and
bounds are rows of results/gpu_curve.csv. The plot puts them side by side, and prints how far apart
they are beside how far apart two seeds are.
"""

import argparse
import csv
import json
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from didlm.train.loop import train
from didlm.train.settings import Settings
from recording import RESULTS, record

SEEDS = (0, 1)
OPTIMISERS = ("muon", "adamw")
STEPS = 400


@dataclass(frozen=True)
class Row:
    """What was measured after a step."""

    device: str
    precision: str
    optimiser: str
    seed: int
    step: int
    kind: str  # train: loss of the batch; valid: bound of held-out texts
    nats: float  # per document


def main() -> None:
    """Measure and record, or plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--optimisers", nargs="*", default=OPTIMISERS)
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args()
    if options.device:
        for optimiser in options.optimisers:
            for seed in options.seeds:
                rows = curve(options.device, optimiser, seed)
                record("gpu_curve", rows, shlex.join(["python", *sys.argv]), ["torch"])
    if options.plot:
        plot()


def curve(device: str, optimiser: str, seed: int) -> list[Row]:
    """The losses of one run."""
    precision = "bf16" if device == "cuda" else "fp32"
    settings = Settings(
        preset="tiny",
        optimiser=optimiser,
        learning_rate=3e-3 if optimiser == "muon" else 1e-3,
        batch=32,
        steps=STEPS,
        seed=seed,
        device=device,
        precision=precision,
        vocabulary=1024,
        validate_every=STEPS // 4,
        valid_documents=100,
        samples=0,
        workers=0,
        log_every=5,
    )
    with tempfile.TemporaryDirectory() as folder:
        train(settings, Path(folder) / "run")
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    rows = []
    for metrics in map(json.loads, lines):
        name = {"train": "loss", "valid": "nats_per_document"}[metrics["kind"]]
        rows.append(
            Row(device, precision, optimiser, seed, metrics["step"], metrics["kind"], metrics[name])
        )
    return rows


def plot() -> None:
    """Draw results/gpu_curve.png, and print the differences."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with (RESULTS / "gpu_curve.csv").open(newline="") as file:
        # Of runs that were repeated, the last counts.
        found = {
            (r["device"], r["optimiser"], int(r["seed"]), r["kind"], int(r["step"])): float(
                r["nats"]
            )
            for r in csv.DictReader(file)
        }
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, optimiser in zip(axes, OPTIMISERS, strict=True):
        curves = {}
        for device, style in (("cpu", "-"), ("cuda", ":")):
            for seed, colour in zip(SEEDS, ("tab:blue", "tab:orange"), strict=True):
                key = (device, optimiser, seed, "train")
                steps = sorted(step for *other, step in found if tuple(other) == key)
                values = np.array([found[(*key, step)] for step in steps])
                curves[device, seed] = values
                label = f"{'GPU, bf16' if device == 'cuda' else 'CPU, float32'}, seed {seed}"
                axis.plot(steps, values, style, color=colour, label=label, lw=1.5)
        axis.set(title=optimiser, xlabel="step", yscale="log")
        apart = np.mean([abs(curves["cpu", s] / curves["cuda", s] - 1)[20:].mean() for s in SEEDS])
        seeds = abs(curves["cpu", 0] / curves["cpu", 1] - 1)[20:].mean()
        bounds = [
            [found[(device, optimiser, seed, "valid", STEPS)] for seed in SEEDS]
            for device in ("cpu", "cuda")
        ]
        print(
            f"{optimiser}: losses of CPU and GPU differ by {100 * apart:.2f} %, those of two seeds "
            f"by {100 * seeds:.2f} %; bounds at the end {bounds[0]} and {bounds[1]}"
        )
    axes[0].set_ylabel("loss (nats per document)")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "gpu_curve.png", dpi=120)


if __name__ == "__main__":
    main()
