"""The documents keep their promises to the code, and the code its promises to the documents."""

import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from didlm.cli import app
from didlm.train import loop

ROOT = Path(__file__).parents[1]
CITATION = re.compile(r"Eq\. (\w+(?:-\w+)*)")


def cited_in(path: Path) -> set[str]:
    # A citation may be broken over two lines of a comment or docstring.
    return set(CITATION.findall(re.sub(r"\s+#?\s*", " ", path.read_text())))


def defined() -> list[str]:
    return re.findall(r"^### Eq\. (\S+)$", (ROOT / "docs/theory.md").read_text(), re.MULTILINE)


def test_every_citation_in_the_code_resolves() -> None:
    files = [p for folder in ("src", "tests", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
    assert len(files) > 20
    dangling = {(p.name, name) for p in files for name in cited_in(p) - set(defined())}
    assert not dangling


def test_every_equation_is_named_once_and_cited_by_the_code() -> None:
    names = defined()
    assert len(names) == len(set(names))
    cited = {name for path in (ROOT / "src").rglob("*.py") for name in cited_in(path)}
    assert set(names) <= cited


def test_equations_cited_in_the_documents_resolve() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        assert cited_in(path) <= set(defined()), path.name


def test_links_between_documents_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} links to {target}"


def documented_training() -> list[str]:
    """Every command in the documents that trains, without what stands before it."""
    commands = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for block in re.findall(
            r"^```(?:sh)?\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL
        ):
            for line in block.replace("\\\n", " ").splitlines():
                if match := re.search(r"didlm (train .*)", line):
                    commands.append(match[1])
    return commands


@pytest.mark.parametrize("command", documented_training())
def test_documented_commands_train(command, tmp_path, monkeypatch) -> None:
    """As far as the settings: their names, their values, and what goes with what."""
    arguments = shlex.split(command, comments=True)
    if "mask-predict" in arguments or set(arguments[1:]) <= {"--out", arguments[2], "--resume"}:
        return  # a method of another package, or a run that was begun before
    called = []
    monkeypatch.setattr(loop, "train", lambda *given: called.append(given))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    assert called


def test_the_readme_opens_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("make demo") < readme.index("make test") < 900


def test_constraints_pin_every_installed_package_exactly() -> None:
    if not (Path(sys.prefix) / ".installed").exists():
        pytest.skip("not running in the environment that make installs")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    for package in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        if name not in ("didlm", "pip"):
            assert pins.get(name) == package.version.partition("+")[0], name
