"""Datasets of Hugging Face, streamed row by row."""

from collections.abc import Iterator
from typing import Any

from didlm.text.blocks import Rows
from didlm.text.reading import row_blocks
from didlm.text.records import Format
from didlm.text.sources import Dataset


def dataset_blocks(name: str, dataset: Dataset, form: Format) -> Iterator[Rows]:
    """The blocks of a dataset, in order; how far it has been read is not known.

    Raises:
        ValueError: if the extra is not installed, or there is no such dataset, config or split.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"{name} needs the datasets library: pip install 'didlm[datasets]'"
        ) from None

    def records() -> Iterator[tuple[dict[str, Any], int]]:
        try:
            rows = datasets.load_dataset(
                dataset.name, dataset.config, split=dataset.split, streaming=True
            )
            for row in rows:
                yield dict(row), 0
        except Exception as problem:  # the library and the network raise a great many kinds
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise ValueError(f"cannot read {name}: {reason}") from None

    return row_blocks(name, records(), form.columns)
