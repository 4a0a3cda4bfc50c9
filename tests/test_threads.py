"""One thread, and afterwards as many as before."""

import pytest
import torch

from didlm.threads import one_thread


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_threads_are_there_again_whatever_happens(threads) -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    with pytest.raises(ValueError, match="broken"), one_thread():
        raise ValueError("broken")
    assert torch.get_num_threads() == threads
