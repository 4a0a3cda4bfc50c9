"""How much noise common to the options of a question saves, in the differences between them.

    python benchmarks/choices.py runs/compare/did runs/compare/radd

Questions are the beginnings of embedded stories. Of "other" options the first is how the story goes
on and the second how another one does, mostly longer or shorter; of "equal" options the second is
the first with two of its words exchanged. `saved` is the variance of the difference with noise of
their own over that with common noise: so many times fewer states are as sharp.
"""

import argparse
import shlex
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from didlm.data import stories
from didlm.evaluate.choices import Question, option_scores
from didlm.pretrained import load
from recording import record


@dataclass(frozen=True)
class Row:
    """One measurement."""

    model: str  # the name of its folder
    method: str
    options: str  # other or equal
    questions: int
    draws: int
    repeats: int
    variance_own: float  # of the difference in nats^2, mean of the questions
    variance_common: float
    saved: float  # how many times


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="folders of models")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=24)
    options = parser.parse_args()
    for folder in options.models:
        model = load(folder)
        for what in ("other", "equal"):
            questions = asked(options.questions, what)

            def variance(common: bool, questions: list[Question] = questions) -> float:
                scores = [
                    option_scores(model, questions, options.draws, seed, common)  # noqa: B023
                    for seed in range(options.repeats)
                ]
                return float(np.var(np.diff(scores, axis=2), axis=0, ddof=1).mean())

            own, together = variance(common=False), variance(common=True)
            row = Row(
                Path(folder).name,
                model.method.name,
                what,
                options.questions,
                options.draws,
                options.repeats,
                own,
                together,
                own / together,
            )
            record("choices", [row], shlex.join(["python", *sys.argv]), ["torch"])
            print(f"{row.model}, {what}: {own:.1f} -> {together:.1f}, {row.saved:.2f} times")


def asked(count: int, what: str) -> list[Question]:
    """Questions with two options each."""
    texts, rng = stories.validation_stories(count + 1), np.random.default_rng(0)
    halves = [(text[: text.find(".") + 1], text[text.find(".") + 1 :]) for text in texts]
    questions = []
    for (begin, end), (_, other) in pairwise(halves):
        if what == "equal":
            words = end.split(" ")
            first, second = rng.choice(np.arange(1, len(words)), 2, replace=False)
            words[first], words[second] = words[second], words[first]
            other = " ".join(words)
        questions.append(Question([begin] * 2, [end, other]))
    return questions


if __name__ == "__main__":
    main()
