"""How texts came to be, as a page to play or as an animation."""

import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from didlm.data.tokenizer import Tokenizer
from didlm.display.pieces import fading_steps, pieces, printable
from didlm.files import check_place, write_bytes
from didlm.generate.results import Frame, Sample


def write_trace(
    path: Path, samples: Sequence[Sample], tokenizer: Tokenizer, title: str = ""
) -> None:
    """Write how texts came to be into a file; the ending of its name says in which form.

    Args:
        path: `.html` for a page that plays in any browser and needs nothing else; `.gif` for an
            animation, one text after the other, which shows the beginning of very long ones. A
            file that is there already is replaced.
        samples: the texts, with their frames.
        tokenizer: of the model that wrote them.
        title: what is written above.

    Raises:
        ValueError: if the form is not known, the folder is not there, there are no samples, one of
            them has no frames, or Pillow is not installed, which animations need.
    """
    path = check_trace(path)
    if not samples:
        raise ValueError("there are no samples to trace")
    for number, sample in enumerate(samples):
        if not sample.frames:
            raise ValueError(f"sample {number} has no frames; generate it with trace=True")
    if path.suffix.lower() == ".html":
        content = _page(samples, tokenizer, title).encode()
    else:
        content = _animation(samples, tokenizer, title)
    write_bytes(path, content)


def check_trace(path: Path) -> Path:
    """Refuse a file that no trace can be written to.

    Raises:
        ValueError: if the form is not known, the folder is not there, or Pillow is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".gif"):
        raise ValueError(f"cannot write a trace to {path}: its name must end with .html or .gif")
    check_place(path)
    if path.suffix.lower() == ".gif" and find_spec("PIL") is None:
        raise ValueError("an animation needs Pillow: pip install 'didlm[plots]'")
    return path


def _page(samples: Sequence[Sample], tokenizer: Tokenizer, title: str) -> str:
    template = files("didlm.display").joinpath("trace.html").read_text(encoding="utf-8")
    filling = {
        "__TITLE__": html.escape(printable(title) or "How a text was written"),
        "__DATA__": _harmless_json(_data(samples, tokenizer)),
    }
    # In one pass: a title or a text may hold the name of a place itself.
    return re.sub("|".join(filling), lambda place: filling[place.group()], template)


def _harmless_json(data: object) -> str:
    """JSON that can stand in a page: nothing in it can end the element that holds it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


def _data(samples: Sequence[Sample], tokenizer: Tokenizer) -> dict[str, object]:
    number_of: dict[str, int] = {}  # of each distinct text of a token
    return {
        "samples": [
            {
                "name": f"sample {sample.number} of seed {sample.seed}",
                "steps": [int(frame.step) for frame in sample.frames],
                "times": [round(float(frame.time), 4) for frame in sample.frames],
                "fade": fading_steps(sample.frames),
                "tokens": [
                    [number_of.setdefault(life.text, len(number_of)), life.born, life.first, end]
                    for life in _lives(sample.frames, tokenizer)
                    for end in [len(sample.frames) if life.end is None else life.end]
                ],
            }
            for sample in samples
        ],
        "texts": list(number_of),  # evaluated last, when all are in
    }


@dataclass(eq=False)
class _Life:
    """A token from the frame with which it comes to the frame from which on it is gone."""

    token: int
    born: int
    text: str
    first: int
    end: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.token, self.born


def _lives(frames: Sequence[Frame], tokenizer: Tokenizer) -> list[_Life]:
    """All tokens that ever were, in an order in which each frame is those alive at it."""
    lives: list[_Life] = []
    for number, frame in enumerate(frames):
        texts = map(printable, pieces(tokenizer, frame.tokens))
        columns = zip(frame.tokens.tolist(), frame.born.tolist(), texts, strict=True)
        lives = _next(lives, [_Life(*column, first=number) for column in columns], number)
    return lives


def _next(lives: list[_Life], frame: list[_Life], number: int) -> list[_Life]:
    """Lay the tokens of the next frame among the lives so far, and end those that are gone."""
    waiting = Counter(life.key for life in lives if life.end is None)
    result: list[_Life] = []
    rest = iter(lives)
    for token in frame:
        if not waiting[token.key]:
            result.append(token)
            continue
        for life in rest:
            result.append(life)
            if life.end is not None:
                continue
            waiting[life.key] -= 1
            # A token changes its text when the bytes of a character come together.
            stays = life.key == token.key and life.text == token.text
            life.end = None if stays else number
            if life.key == token.key:
                result += [] if stays else [token]
                break
    for life in rest:
        result.append(life)
        life.end = number if life.end is None else life.end
    return result


def _animation(samples: Sequence[Sample], tokenizer: Tokenizer, title: str) -> bytes:
    from didlm.display.gif import animation

    return animation(samples, tokenizer, title)
