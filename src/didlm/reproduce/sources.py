"""Where data comes from: a name of Hugging Face, or a local file in its place."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path

from didlm.text.blocks import parse
from didlm.text.datasets import dataset_blocks
from didlm.text.documents import read_pairs
from didlm.text.records import Document, Format
from didlm.text.sources import find_sources

PIECE = 4000  # characters, of long documents at small scales: some 1,000 tokens


@dataclass(frozen=True)
class Sources:
    """All data by name.

    Args:
        local: files in the place of data of the hub.
    """

    local: Mapping[str, Path]

    @classmethod
    def given(cls, assignments: Sequence[str]) -> "Sources":
        """From NAME=PATH.

        Raises:
            ValueError: for an unknown name, or a path that leads nowhere.
        """
        local = {}
        for name, path in assigned(assignments, "--data", known()).items():
            if not Path(path).exists():
                raise ValueError(f"there is no file {path} for --data {name}")
            local[name] = Path(path)
        return cls(local)

    def training(self, name: str) -> tuple[str, str]:
        """What to train on, as a setting of a run, and the column of its text.

        Raises:
            ValueError: if there is neither a file nor a place on the hub.
        """
        if name in self.local:
            return str(self.local[name]), "text"
        place = known()[name]
        if "hub" not in place:
            raise ValueError(f"there is no data '{name}': name a file with --data {name}=PATH")
        return place["hub"], place.get("column", "text")

    def pairs(self, name: str, limit: int = 0, column: str = "text") -> list[Document]:
        """The documents of a name with their prompts, at most so many.

        Raises:
            ValueError: if they cannot be read, naming the option that would help.
        """
        if name in self.local:
            return read_pairs(self.local[name], column=column)[: limit or None]
        source, column = self.training(name)
        with self.advising(name):
            return list(islice(_streamed(source, Format(column)), limit or None))

    @contextmanager
    def advising(self, name: str) -> Iterator[None]:
        """Where the data of a name cannot be had from the hub, say which option would help.

        Raises:
            ValueError: what was raised inside, with that advice if it is about this data.
        """
        try:
            yield
        except ValueError as problem:
            hub = known()[name].get("hub", "")
            if name in self.local or not hub or hub not in str(problem):
                raise
            raise ValueError(f"{problem}; or name a file with --data {name}=PATH") from None

    def texts(self, name: str, limit: int = 0) -> list[str]:
        """The documents of a name."""
        return [text for _, text in self.pairs(name, limit)]

    def tokenizer(self, name: str) -> str:
        """The file of a tokenizer.

        Raises:
            ValueError: if it cannot be downloaded, naming the option that would help.
        """
        if name in self.local:
            return str(self.local[name])
        repo = known()[name]["tokenizer"]
        try:
            from huggingface_hub import hf_hub_download

            return str(hf_hub_download(repo, "tokenizer.json"))
        except Exception as problem:  # the library and the network raise a great many kinds
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise ValueError(
                f"cannot download the tokenizer {repo}: {reason}; "
                f"or name a file with --data {name}=PATH"
            ) from None


def known() -> dict[str, dict[str, str]]:
    """What there is."""
    text = (resources.files("didlm.reproduce") / "data.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def assigned(
    assignments: Sequence[str], option: str, names: Mapping[str, object]
) -> dict[str, str]:
    """NAME=VALUE, with names that are known.

    Raises:
        ValueError: saying which option is wrong.
    """
    found = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not value:
            raise ValueError(f"{option} takes NAME=VALUE: got '{assignment}'")
        if name not in names:
            raise ValueError(f"{option} knows no '{name}': known are {', '.join(names)}")
        found[name] = value
    return found


def as_lines(texts: Sequence[str]) -> str:
    """Texts as a .jsonl file; long ones in pieces, so that few books are many documents."""
    pieces = [text[at : at + PIECE] for text in texts for at in range(0, len(text), PIECE)]
    return "".join(json.dumps({"text": piece}) + "\n" for piece in pieces if piece.strip())


def _streamed(name: str, form: Format) -> Iterator[Document]:
    for source in find_sources([name]):
        assert source.dataset is not None
        for block in dataset_blocks(name, source.dataset, form):
            yield from parse(block, form).documents
