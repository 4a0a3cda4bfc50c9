"""An animation of texts being written, drawn by Pillow, which is an optional dependency."""

import importlib.util
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from didlm.data.tokenizer import Tokenizer
from didlm.display.pieces import fading_steps, pieces, printable
from didlm.generate.results import Frame, Sample

MOST_FRAMES = 120
_LASTS = 9000  # milliseconds, of one text
_HOLD = 2000  # milliseconds, of a finished text

_WIDTH, _MARGIN, _SMALL = 880, 48, 15  # pixels; the last is the size of small letters
_SIZES = (24, 22, 20, 18, 16, 14, 12)  # of letters: the first at which a text is low enough
_LOW_ENOUGH, _TALLEST = 540, 1600  # pixels; what is taller even in the smallest is cut off
_LEADING = 1.7  # from line to line, in sizes

_Colour = tuple[int, int, int]
_PAGE, _TRACK, _MUTED = (18, 20, 26), (43, 48, 59), (143, 149, 161)
_INK, _GIVEN, _NEW, _HALO = (216, 213, 205), (125, 183, 232), (255, 181, 69), (66, 48, 18)
_LEVELS = 8  # of glow
_SHADES = 10  # from the ground to a letter: its edges are smooth

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class _Scene:
    """What one picture shows."""

    parts: list[str]  # the text of each token
    looks: list[int]  # of each token: its level of glow, or -1 if it was given
    time: float
    caption: str
    milliseconds: int


@dataclass(frozen=True)
class _Run:
    """Letters of one token on one line."""

    x: float
    text: str
    token: int


def animation(samples: Sequence[Sample], tokenizer: Tokenizer, title: str) -> bytes:
    """A GIF of the samples, one after the other."""
    most = max(2, MOST_FRAMES // len(samples))
    scenes = [scene for sample in samples for scene in _scenes(sample, tokenizer, most)]
    size = _fitting_size(scenes)
    measure = cache(_font(size).getlength)
    layouts = [_layout(scene.parts, measure) for scene in scenes]
    rows = min(max(map(len, layouts)), int(_TALLEST / (size * _LEADING)))
    draw = partial(_picture, title=title, size=size, rows=rows)
    first, *others = map(draw, scenes, layouts)
    return _encoded(first, others, [scene.milliseconds for scene in scenes])


def _scenes(sample: Sample, tokenizer: Tokenizer, most: int) -> list[_Scene]:
    frames = _spread(sample.frames, most)
    last, fade = frames[-1].step, fading_steps(sample.frames)
    pace = min(max(_LASTS // len(frames), 60), 300)
    return [
        _Scene(
            parts=[printable(part) for part in pieces(tokenizer, frame.tokens)],
            looks=[_look(frame.step, born, fade) for born in frame.born.tolist()],
            time=frame.time,
            caption=f"step {frame.step} of {last}   time {frame.time:.3f}"
            f"   {len(frame.tokens)} tokens",
            milliseconds=_HOLD if frame is frames[-1] else pace,
        )
        for frame in frames
    ]


def _spread(frames: Sequence[Frame], most: int) -> list[Frame]:
    """At most so many of the frames, evenly, the first and the last among them."""
    chosen = np.linspace(0, len(frames) - 1, min(len(frames), most)).round().astype(int)
    return [frames[number] for number in chosen]


def _look(step: int, born: int, fade: int) -> int:
    return -1 if born == 0 else max(0, _LEVELS - (step - born) * _LEVELS // fade)


def _colours(look: int) -> tuple[_Colour, _Colour]:
    """Of the letters of a token, and of the ground they stand on."""
    if look < 0:
        return _GIVEN, _PAGE
    return _mix(_INK, _NEW, look / _LEVELS), _mix(_PAGE, _HALO, look / _LEVELS)


def _mix(start: _Colour, end: _Colour, share: float) -> _Colour:
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(start, end, strict=True))
    return red, green, blue


@cache
def _palette() -> Image.Image:
    """All colours that occur, the same for every picture, so that nothing flickers."""
    pairs = [*(_colours(look) for look in range(-1, _LEVELS + 1)), (_MUTED, _PAGE)]
    colours = {
        _mix(ground, letter, shade / (_SHADES - 1))
        for letter, ground in pairs
        for shade in range(_SHADES)
    }
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for colour in sorted(colours | {_TRACK}) for value in colour])
    return palette


@cache
def _font(size: int) -> _Font:
    """DejaVu Sans, which knows many alphabets and comes with matplotlib; or Pillow's own."""
    found = importlib.util.find_spec("matplotlib")
    if found and found.origin:
        file = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file():
            return ImageFont.truetype(str(file), size)
    return ImageFont.load_default(size)


def _fitting_size(scenes: list[_Scene]) -> int:
    longest = max((scene.parts for scene in scenes), key=lambda parts: sum(map(len, parts)))
    for size in _SIZES:
        if len(_layout(longest, cache(_font(size).getlength))) * size * _LEADING <= _LOW_ENOUGH:
            return size
    return _SIZES[-1]


def _layout(parts: list[str], measure: Callable[[str], float]) -> list[list[_Run]]:
    """Break a text into lines between words, or inside of one that is longer than a line."""
    width, text = _WIDTH - 2 * _MARGIN, "".join(parts)
    owner = [token for token, part in enumerate(parts) for _ in part]
    lines, x = [list[_Run]()], 0.0
    for start, end in _words(text, width, measure):
        word = text[start:end]
        if word == "\n" or (x > 0 and x + measure(word) > width and not word.isspace()):
            lines.append([])
            x = 0.0
        if not word.isspace():
            for token, places in groupby(range(start, end), key=owner.__getitem__):
                at, *others = places
                run = text[at : at + 1 + len(others)]
                lines[-1].append(_Run(x + measure(text[start:at]), run, token))
        x += 0.0 if word == "\n" else measure(word)
    return lines


def _words(text: str, width: float, measure: Callable[[str], float]) -> Iterator[tuple[int, int]]:
    """Where words, blanks and line breaks begin and end; letters if a word is too long."""
    for word in re.finditer(r"\n|[^\S\n]+|\S+", text):
        start, end = word.span()
        if text[start] == "\n" or measure(word.group()) <= width:
            yield start, end
        else:
            yield from ((letter, letter + 1) for letter in range(start, end))


def _picture(
    scene: _Scene, lines: list[list[_Run]], title: str, size: int, rows: int
) -> Image.Image:
    top = _MARGIN + (2 * _SMALL if title else 0)
    bottom = top + round(rows * size * _LEADING) + 2 * _SMALL
    image = Image.new("RGB", (_WIDTH, bottom + 2 * _SMALL + _MARGIN // 2), _PAGE)
    draw = ImageDraw.Draw(image)
    if title:
        _write(draw, _shortened(title), _MARGIN)
    for number, line in enumerate(lines[:rows]):
        middle = top + round((number + 0.5) * size * _LEADING)
        for run in line:
            _write_run(draw, run, scene.looks[run.token], middle, size)
    end = _WIDTH - _MARGIN
    draw.rectangle((_MARGIN, bottom, end, bottom + 2), fill=_TRACK)
    done = round((1 - scene.time) * (end - _MARGIN))
    if done > 0:
        draw.rectangle((_MARGIN, bottom, _MARGIN + done, bottom + 2), fill=_NEW)
    _write(draw, scene.caption, bottom + round(1.6 * _SMALL))
    return image.quantize(palette=_palette(), dither=Image.Dither.NONE)


def _write_run(draw: ImageDraw.ImageDraw, run: _Run, look: int, middle: int, size: int) -> None:
    letter, ground = _colours(look)
    x = _MARGIN + run.x
    if ground != _PAGE:
        half, width = round(0.68 * size), _font(size).getlength(run.text)
        box = (x - 1, middle - half, x + width + 1, middle + half)
        draw.rounded_rectangle(box, radius=size // 6, fill=ground)
    # The middle of small letters, whichever the run holds: baselines must agree.
    draw.text((x, middle + round(0.35 * size)), run.text, letter, _font(size), anchor="ls")


def _write(draw: ImageDraw.ImageDraw, text: str, middle: int) -> None:
    draw.text((_MARGIN, middle), text, _MUTED, _font(_SMALL), anchor="lm")


def _shortened(title: str) -> str:
    """The first line of a title, as much of it as fits."""
    line = printable(title).split("\n")[0]
    measure, width = _font(_SMALL).getlength, _WIDTH - 2 * _MARGIN
    while measure(line) > width:
        line = line.removesuffix("\u2026")[:-1] + "\u2026"
    return line


def _encoded(first: Image.Image, others: list[Image.Image], durations: list[int]) -> bytes:
    buffer = io.BytesIO()
    first.save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=others,
        duration=durations,
        loop=0,
        optimize=True,
    )
    return buffer.getvalue()
