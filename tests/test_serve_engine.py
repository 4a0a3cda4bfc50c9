"""The engine alone: it needs nothing of what the service speaks HTTP with."""

import os
import re
import subprocess
import sys
from pathlib import Path

from serving import tiny_model

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LIBRARIES = ("fastapi", "starlette", "uvicorn", "pydantic", "h11", "anyio")
MEASURED = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({LIBRARIES}))  # to import these is an error now
sys.path.insert(0, {str(BENCHMARKS)!r})
runpy.run_path({str(BENCHMARKS / "serving.py")!r}, run_name="__main__")
"""


def test_it_is_measured_without_the_libraries_of_the_service(tmp_path) -> None:
    tiny_model().save_pretrained(tmp_path / "mine")
    command = [sys.executable, "-c", MEASURED, "--engine", "--no-record", "--model"]
    command += [str(tmp_path / "mine"), "--batches", "4", "1", "--clients", "6", "--steps", "4"]
    command += ["--seconds", "1", "--warm-up", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert "failed:" not in run.stdout
    assert re.search(r"batched against one at a time: \d+\.\d+ times the rows", run.stdout)
    table = [line.split("│")[1:-1] for line in run.stdout.splitlines() if line.startswith("│")]
    batches = [int(row[0]) for row in table]
    together = [float(row[3]) for row in table]
    rows = [float(row[4].replace(",", "")) for row in table]
    turned_away, failed = ([int(row[column]) for row in table] for column in (9, 10))
    assert batches == [4, 1]
    assert min(rows) > 0
    assert 1 < together[0] <= 4
    assert together[1] == 1
    assert turned_away[0] == 0  # 4 are written and up to 8 wait
    assert turned_away[1] > 0
    assert failed == [0, 0]
