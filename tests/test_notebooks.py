"""The notebooks run from top to bottom, as they are but for the length of their training."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore")  # of the machinery around the kernel
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    notebook = nbformat.read(path, 4)
    shortened = 0
    for cell in notebook.cells:
        shortened += "STEPS = 1000" in cell.source
        cell.source = cell.source.replace("STEPS = 1000", "STEPS = 8")
    assert shortened == (path.stem == "train_on_your_own_text")
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert all(cell.outputs is not None for cell in notebook.cells if cell.cell_type == "code")


def test_the_notebooks_are_shown_with_their_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        code = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code), path.name
        assert sum(bool(cell.outputs) for cell in code) > len(code) / 2, path.name
        assert "/site-packages/" not in path.read_text(), path.name  # a warning, or an error
