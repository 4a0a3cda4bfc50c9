"""The command as a user runs it: in a process of its own."""

import subprocess
import sys

import pytest

import didlm


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from didlm.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_demo_shows_the_papers_example_deletion_and_targets() -> None:
    result = run("demo")
    assert result.returncode == 0
    assert "N = 5" in result.stdout
    assert "t = 0.500   <BOS>" in result.stdout
    assert "a 0.4   b 0.6   g 0.2" in result.stdout
    assert run("demo").stdout == result.stdout
    assert run("demo", "--seed", "1").stdout != result.stdout


def test_align_shows_targets() -> None:
    result = run("align", "a b a", "a")
    assert result.returncode == 0
    assert "<BOS> _ a    a 0.5   b 0.5" in result.stdout
    assert "N = 2" in result.stdout
    assert run("align", "", "").returncode == 0
    assert "[/] _ [b]" in run("align", "[/] a [b]", "[/] [b]").stdout  # no markup


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["align", "a b", "c"], "didlm: 'c' is not contained in 'a b'"),
        (["demo", "--seed", "-1"], "--seed"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_gets_a_sentence_and_exit_code_2(arguments, sentence) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    assert run("--version").stdout == f"didlm {didlm.__version__}\n"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, didlm.cli; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_submodules_are_reached_from_the_package() -> None:
    assert didlm.alignment.insertion_targets([1], [False]).token.tolist() == [1]
    assert "packed" in dir(didlm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = didlm.nothing
