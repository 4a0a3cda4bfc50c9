"""Settings for all tests."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Libraries that report to their makers, in threads of their own, would do so from any test.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

# The same examples at every run, however slow the machine.
settings.register_profile("didlm", deadline=None, derandomize=True)
settings.load_profile("didlm")

# Two test processes on two cores: threads of their own would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory) -> Iterator[None]:
    """Text that is prepared for training goes into a cache of the tests' own."""
    before = os.environ.get("DIDLM_CACHE")
    os.environ["DIDLM_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["DIDLM_CACHE"]
    else:
        os.environ["DIDLM_CACHE"] = before
