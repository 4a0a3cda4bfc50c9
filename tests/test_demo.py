"""The middle that the demo lets a model write again, and how it ends early."""

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from didlm import demo
from didlm.cli import app
from didlm.cli.endings import EXIT_INTERRUPTED
from didlm.demo import around
from didlm.generate.template import Blank
from didlm.train.loop import Interrupted

STORY = 'One day Tom ran. He fell. "Ouch!" he said. A dog came. It licked him. Tom laughed.'


def test_the_middle_third_of_the_sentences_is_blank() -> None:
    begin, blank, end = around(STORY)
    assert (begin, end) == ("One day Tom ran. He fell. ", " It licked him. Tom laughed.")
    assert isinstance(blank, Blank)


@given(st.text(max_size=60))
def test_any_text_has_a_middle(story) -> None:
    begin, blank, end = around(story)
    assert isinstance(begin, str)
    assert isinstance(blank, Blank)
    assert isinstance(end, str)
    assert story.startswith(begin.rstrip())
    assert story.endswith(end.lstrip())


def test_a_demo_that_is_stopped_says_so_in_a_sentence(tmp_path, monkeypatch) -> None:
    def stopped(*_):
        raise Interrupted("stopped at step 3 of 9, as asked")

    monkeypatch.setattr(demo, "show_demo", stopped)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == EXIT_INTERRUPTED
    assert result.output == "didlm: stopped at step 3 of 9, as asked\n"
