"""Triton's interpreter: kernels run on the CPU, slowly, in a process of their own."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")


def runs_as_main(file: str) -> bool:
    """Whether a test file, run as a program in which kernels are interpreted, ends well."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    return subprocess.run([sys.executable, file], check=False, env=environment).returncode == 0
