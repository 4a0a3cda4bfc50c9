"""Datasets of Hugging Face, streamed row by row."""

from collections.abc import Iterator
from typing import Any

from didlm.text.blocks import Rows
from didlm.text.reading import row_blocks
from didlm.text.records import Format
from didlm.text.sources import CONVERTED, Dataset


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
            rows = datasets.load_dataset(dataset.name, streaming=True, **_options(dataset))
            for row in rows:
                yield dict(row), 0
        except Exception as problem:  # the library and the network raise a great many kinds
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise ValueError(f"cannot read {name}: {reason}") from None

    return row_blocks(name, records(), form.columns)


def _options(dataset: Dataset) -> dict[str, str | None]:
    """What of a dataset is to be loaded."""
    # Among the files that the hub has converted a config is a folder, of which nothing but its
    # place says so: asked for by its name it is not found.
    config = "data_dir" if dataset.revision == CONVERTED else "name"
    return {config: dataset.config, "split": dataset.split, "revision": dataset.revision}
