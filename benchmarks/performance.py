"""What docs/performance.md shows: its tables and plots, from recorded measurements alone.

    python benchmarks/performance.py

Reads results/gpu_train.csv and results/gpu_sample.csv, of which the newest row of every case
counts; writes tables between the markers of the page, and plots beside it.
"""

from pathlib import Path

from performance_plots import draw
from performance_tables import filled, sampled
from recorded import training_steps

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Write the page and its plots."""
    page, steps, samples = DOCS / "performance.md", training_steps(), sampled()
    page.write_text(filled(page.read_text(encoding="utf-8"), steps, samples), encoding="utf-8")
    print(f"{len(steps)} training steps and {len(samples)} measurements of sampling in {page}")
    for path in draw(steps, samples, DOCS / "performance"):
        print(f"drawn in {path}")


if __name__ == "__main__":
    main()
