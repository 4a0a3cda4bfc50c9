"""The course of a run as a picture."""

import json
from pathlib import Path


def draw_curve(folder: Path, entropy: float | None = None) -> Path | None:
    """Draw the metrics of a run folder into curve.png; nothing without matplotlib.

    Args:
        folder: of the run.
        entropy: in nats per document, where it is known: no bound can go below.
    """
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    training = [m for m in metrics if m["kind"] == "train"]
    validation = [m for m in metrics if m["kind"] == "valid"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot([m["step"] for m in training], [m["loss"] for m in training], linewidth=1)
    left.set(
        xlabel="step", ylabel="nats per document, weighted", yscale="log", title="training loss"
    )
    right.errorbar(
        [m["step"] for m in validation],
        [m["nats_per_document"] for m in validation],
        [2 * m["stderr"] for m in validation],
        marker="o",
        capsize=2,
        label="bound on unseen documents",
    )
    if entropy is not None:
        right.axhline(entropy, color="black", linestyle="--", label="exact entropy")
        right.set_ylim(bottom=0)
    right.set(xlabel="step", ylabel="nats per document", title="likelihood bound (± 2 std. errors)")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    path = folder / "curve.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
