"""The documentation site: built strictly, without anything from elsewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory) -> Path:
    """What the site is built from, and the settings."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "docs/site.py", folder / "build/docs"], check=True)
    shutil.copy(ROOT / "zensical.toml", folder)
    return folder


def test_the_site_is_built_strictly_and_fetches_nothing(laid_out) -> None:
    done = build(laid_out)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {p.name: p.read_text() for p in (laid_out / "build/site").rglob("*.html")}
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert documents <= {name.removesuffix(".html") for name in pages}
    for name, page in pages.items():
        fetched = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", page)
        assert not fetched, name
    assert "reference software" in pages["index.html"]
    assert "<math" in pages["theory.html"]
    assert "$$" not in pages["theory.html"]


def test_every_document_is_in_the_navigation() -> None:
    settings = (ROOT / "zensical.toml").read_text()
    assert [p.name for p in (ROOT / "docs").glob("*.md") if f'"{p.name}"' not in settings] == []


def test_a_link_that_leads_nowhere_is_an_error(laid_out, tmp_path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(laid_out, folder)
    with (folder / "build/docs/models.md").open("a") as page:
        page.write("\n[nowhere](training.md#no-such-place)\n")
    done = build(folder)
    assert done.returncode != 0
    assert "anchor does not exist" in done.stdout + done.stderr
