"""Triton's interpreter: kernels run on the CPU, slowly, in a process of their own."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")


def run_as_main(file: str) -> None:
    """Run a test file as a program in which kernels are interpreted; it must end well."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, file], check=True, env=environment)
