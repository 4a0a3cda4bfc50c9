"""The middle that the demo lets a model write again."""

from hypothesis import given
from hypothesis import strategies as st

from didlm.demo import around
from didlm.generate.template import Blank

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
