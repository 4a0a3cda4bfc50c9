"""Questions with worked answers: reading them, learning from them, and finding the answer.

Files are as in the literature: lines `question||chain #### answer` (.txt), or JSON objects with
`question` and `answer` (.jsonl), either of them compressed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from didlm.reproduce.sources import Sources
from didlm.text.documents import read_text
from didlm.text.opening import kind_of

MARK = "####"
_NUMBER = re.compile(r"-?\$?[0-9][0-9,]*(?:\.[0-9]+)?|-?\$?\.[0-9]+")


@dataclass(frozen=True)
class Worked:
    """A question and its worked answer."""

    question: str
    answer: str

    @property
    def prompt(self) -> str:
        """What is given."""
        return f"Question: {self.question}\nAnswer:"

    @property
    def response(self) -> str:
        """What is learnt."""
        return f" {self.answer}"


def read_questions(sources: Sources, name: str, limit: int = 0) -> list[Worked]:
    """The questions of a name.

    Raises:
        ValueError: if they cannot be read, or one has no answer.
    """
    path = sources.local.get(name)
    if path is not None and kind_of(path) == ".txt":
        found = _lines(path)
    else:
        found = [Worked(*pair) for pair in sources.pairs(name, limit, "question+answer")]
    return found[: limit or None]


def _lines(path: Path) -> list[Worked]:
    found = []
    for number, line in enumerate(read_text(path).split("\n"), 1):  # questions have other breaks
        question, bars, answer = line.partition("||")
        if not line.strip():
            continue
        if not bars or not question.strip() or answer_of(answer) is None:
            raise ValueError(
                f"line {number} of {path} is no question||chain {MARK} answer: '{line[:60]}'"
            )
        found.append(Worked(question.strip(), answer.strip()))
    if not found:
        raise ValueError(f"{path} has no questions")
    return found


def as_pairs(questions: Sequence[Worked]) -> str:
    """As a .jsonl file to train on with column=prompt+response."""
    records = [{"prompt": each.prompt, "response": each.response} for each in questions]
    return "".join(json.dumps(record) + "\n" for record in records)


def answer_of(text: str) -> str | None:
    """The number after the last mark, without commas, signs of money and trailing zeros."""
    _, mark, rest = text.rpartition(MARK)
    found = _NUMBER.search(rest) if mark else None
    if found is None:
        return None
    number = found.group().replace(",", "").replace("$", "")
    return number.rstrip("0").rstrip(".") if "." in number else number
