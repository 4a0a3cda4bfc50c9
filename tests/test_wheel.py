"""The package as it is installed: a wheel, alone, in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True)
    (made,) = folder.glob("didlm-*.whl")
    return made


def test_the_wheel_holds_the_shipped_model(wheel) -> None:
    held = zipfile.ZipFile(wheel).namelist()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md"):
        assert f"didlm/models/stories/{name}" in held
    assert not [name for name in held if name.startswith(("tests", "docs", "benchmarks"))]


def test_a_wheel_alone_in_a_fresh_environment_writes(wheel, tmp_path) -> None:
    """Its dependencies are lent: what is tried is whether the package itself is whole."""
    home = tmp_path / "fresh"
    venv.create(home, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin/python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    lent = {"PYTHONPATH": sysconfig.get_path("purelib"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [home / "bin/didlm", "generate", "--steps", "4", "--seed", "0", "--max-length", "40"],
        env=os.environ | lent,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5
    where = subprocess.run(
        [home / "bin/python", "-c", "import didlm; print(didlm.__file__)"],
        env=os.environ | lent,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(home)


@pytest.mark.long
def test_a_wheel_with_its_dependencies_writes(wheel, tmp_path) -> None:
    """Everything installed anew, as a user does it."""
    home = tmp_path / "fresh"
    venv.create(home, with_pip=True)
    pip = [home / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", wheel], check=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [home / "bin/didlm", "generate", "--steps", "16", "--seed", "0"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) > 20
