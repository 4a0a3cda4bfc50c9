"""All records of the comparison on real text, read at once, and looked up by run."""

from dataclasses import dataclass, replace
from pathlib import Path

from didlm.compare.gather import interpolated
from real_text_curves import Curve
from real_text_records import Figures, Records
from real_text_runs import RUNS, SETTINGS, TOP_P, Run

Group = tuple[str, str]  # setting and size


@dataclass(frozen=True)
class Book:
    """Records by run; those of the texts themselves by setting."""

    runs: dict[str, Figures]
    likelihood: dict[str, Figures]
    samples: dict[str, Figures]
    middles: dict[str, Figures]
    reference: dict[str, Figures]

    @staticmethod
    def read(folder: Path) -> "Book":
        """What there is."""
        records = Records(folder)
        kinds = ("run", "likelihood", "samples", "middles", "reference")
        found = Book(*(records.all(kind) for kind in kinds))
        order = [name for name in RUNS if name in found.runs]
        return replace(found, runs={name: found.runs[name] for name in order})

    @property
    def groups(self) -> list[Group]:
        """What is compared, in the order of the table of runs."""
        return list(dict.fromkeys(run.group for run in RUNS.values() if run.name in self.runs))

    def of(self, group: Group) -> list[Run]:
        """The trained runs of a group that are part of the comparison."""
        there = [run for run in RUNS.values() if run.name in self.runs and run.group == group]
        return [run for run in there if not run.only_judges]

    def find(self, group: Group, method: str, objective: str | None = None) -> Run | None:
        """The run of a method in a group."""
        for run in self.of(group):
            if run.method == method and run.options.get("objective") == objective:
                return run
        return None

    def curves(self, group: Group) -> dict[str, Curve]:
        """The validations of all runs of a group."""
        return {run.name: self.runs[run.name]["curve"] for run in self.of(group)}

    def bits(self, run: Run | None) -> dict[str, Figures]:
        """Likelihoods of a run by set."""
        if run is None:
            return {}
        return self.likelihood.get(run.name, {"sets": {}})["sets"]

    def written(
        self,
        run: Run | None,
        steps: int | None = None,
        top_p: float = 1.0,
        temperature: float = 1.0,
    ) -> list[Figures]:
        """Rows of samples; of all numbers of steps, fewest first, if none is named."""
        rows = self.samples.get(run.name, {}).get("rows", []) if run else []
        asked = (top_p, temperature)
        found = [row for row in rows if (row["top_p"], row["temperature"]) == asked]
        found = [row for row in found if steps is None or row["steps_asked"] in (steps, 0)]
        return sorted(found, key=lambda row: row["steps_asked"])

    def tempered(self, run: Run, steps: int) -> list[Figures]:
        """All temperatures at so many steps, by entropy."""
        rows = self.samples.get(run.name, {}).get("rows", [])
        found = [row for row in rows if row["steps_asked"] == steps and row["top_p"] == 1]
        return sorted(found, key=lambda row: row["entropy_bits"])

    def at_data_entropy(self, run: Run, steps: int) -> float | None:
        """Perplexity at the entropy of the data, which the temperature leads to."""
        return self._interpolated(run, self.tempered(run, steps))

    def at_data_entropy_by_nucleus(self, run: Run, steps: int) -> float | None:
        """The same, but top-p leads there."""
        rows = [row for p in (TOP_P, 1.0) for row in self.written(run, steps, top_p=p)]
        return self._interpolated(run, rows)

    def _interpolated(self, run: Run, rows: list[Figures]) -> float | None:
        data = self.reference.get(run.setting)
        points = [(row["entropy_bits"], row["generative_perplexity"]) for row in rows]
        points = [point for point in points if point[1]]
        if data is None or len(points) < 2:
            return None
        return interpolated(points, data["texts"]["entropy_bits"])


def title(group: Group) -> str:
    """A group in words."""
    setting, preset = group
    what = "chunks of novels" if SETTINGS[setting].chunks else "TinyStories and fables"
    return f"{what}, `{preset}`"
