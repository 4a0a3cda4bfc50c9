"""Models and tokenizers that tests of generation share."""

import pytest

from didlm.data.tokenizer import Tokenizer
from didlm.generate import driver
from didlm.pretrained import Model
from writing import BERT, STORY, small_model


@pytest.fixture(scope="module")
def stories() -> Tokenizer:
    return Tokenizer.train_bpe([STORY] * 3, 330)


@pytest.fixture(scope="module")
def free(stories) -> Model:
    return small_model(stories)


@pytest.fixture(scope="module")
def fixed(stories) -> Model:
    return small_model(stories, length=16)


@pytest.fixture(scope="module")
def quick(stories) -> Model:
    """Writes little, in little time."""
    return small_model(stories, mean_length=3.0, layers=1)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    path.write_text("\n".join([*BERT, ""]))
    return Tokenizer.load(path)


@pytest.fixture(scope="module", autouse=True)
def everything_ends():
    step = driver.Writer.step

    def counted(writer):
        step(writer)
        assert writer.passes.max() < 1000, "generation does not end"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Writer, "step", counted)
        yield
