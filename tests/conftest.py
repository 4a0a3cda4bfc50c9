"""Settings for all tests."""

import torch
from hypothesis import settings

# The same examples at every run, however slow the machine.
settings.register_profile("didlm", deadline=None, derandomize=True)
settings.load_profile("didlm")

# Two test processes on two cores: threads of their own would only wait for each other.
torch.set_num_threads(1)
