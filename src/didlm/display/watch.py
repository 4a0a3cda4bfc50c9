"""Texts growing on the screen while a model writes them."""

import math
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from types import TracebackType

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from didlm.data.tokenizer import Tokenizer
from didlm.display.pieces import pieces, printable
from didlm.generate.results import Frame

PLAIN_EVERY = 10.0  # seconds between two lines where there is no terminal
_REDRAW_EVERY = 1 / 30  # seconds; a fast model takes more steps than an eye can follow

# By the pictures since a token came. Readable on black and on white: a terminal does not say which.
_FADING = ("bold #f08c00", "bold #e08a1e", "#d0883c", "#b98850", "#a28a6a")
_GIVEN = "#3d9bd6"
_BAR = "#d0883c"
_WIDEST = 100  # columns: longer lines are hard to read
_LINES_BEFORE = 2  # of given text, where a window begins
_LEAST_LINES = 3  # of each text, where several share the screen


class Watch:
    """A live display of texts being written; use it as a context.

    New tokens light up and fade over the next pictures; given ones have a colour of their own. Of a
    text that is too long for the screen, a window is shown from where the writing begins. Without
    a terminal there is a plain line now and then, and one at the end.

    Args:
        tokenizer: of the model that writes.
        console: where to draw; the standard error by default.
        seconds_per_frame: how long each picture stays at least, that a fast model can be followed.

    Raises:
        ValueError: if `seconds_per_frame` is negative or not a number.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        console: Console | None = None,
        seconds_per_frame: float = 0.0,
    ) -> None:
        if not (math.isfinite(seconds_per_frame) and seconds_per_frame >= 0):
            raise ValueError(f"seconds_per_frame must be 0 or more: got {seconds_per_frame}")
        self._tokenizer = tokenizer
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._pause = seconds_per_frame
        self._live = (
            Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                vertical_overflow="crop",
            )
            if self._console.is_terminal and not self._console.is_dumb_terminal
            else None
        )
        self._waiting: Sequence[Frame] = ()  # frames that have not been drawn yet
        self._last = -math.inf if self._live else time.perf_counter()
        self._tallest = Counter[int]()  # lines that each of the texts has taken at most
        self._drawn: deque[int] = deque(maxlen=len(_FADING))  # the steps of the last pictures
        self._first = 0  # the number of the first text of the batch

    def __enter__(self) -> "Watch":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._draw()
        finally:
            if self._live:
                self._live.stop()

    def show(self, frames: Sequence[Frame]) -> None:
        """Show the texts as they are now, one frame for each; the first ones if not all fit."""
        self._waiting = frames
        if self._live:
            time.sleep(max(0.0, self._last + self._pause - time.perf_counter()))
        every = _REDRAW_EVERY if self._live else PLAIN_EVERY
        if time.perf_counter() - self._last >= every:
            self._draw()

    def _draw(self) -> None:
        frames, self._waiting = self._waiting, ()
        if not frames:
            return
        if self._live:
            if frames[0].number != self._first:  # another batch
                self._tallest.clear()
                self._drawn.clear()
                self._first = frames[0].number
            self._live.update(self._picture(frames), refresh=True)
            self._drawn.append(max(frame.step for frame in frames))
        else:
            self._console.print("  ".join(_numbers(frames)), soft_wrap=True)
        self._last = time.perf_counter()

    def _picture(self, frames: Sequence[Frame]) -> Group:
        """The first texts that fit, and below them a line of numbers."""
        room = max(1, self._console.height - 3)  # below are an empty line, the status, the cursor
        shown = min(len(frames), max(1, room // (_LEAST_LINES + 1)))
        note = f"{shown} of {len(frames)} texts" if shown < len(frames) else ""
        if shown == 1:
            window, where = self._window(0, frames[0], room)
            lines = [*window, Text(), self._status(frames, note or where)]
            return Group(*lines[-self._console.height :])
        lines = []
        for place, frame in enumerate(frames[:shown]):
            window, where = self._window(place, frame, room // shown - 1)
            heading = f"text {frame.number + 1}  {len(frame.tokens)} tokens  {where}"
            lines += [Text(heading, style="dim"), *window]
        return Group(*lines, Text(), self._status(frames, note))

    def _window(self, place: int, frame: Frame, height: int) -> tuple[list[Text], str]:
        """As many lines of a text as there is room for, and which of how many these are."""
        parts = [self._drawable(part) for part in pieces(self._tokenizer, frame.tokens)]
        lines = self._wrapped(parts, [self._style(born) for born in frame.born.tolist()])
        # It never gets lower again: what stands below would jump.
        self._tallest[place] = min(height, max(self._tallest[place], len(lines)))
        if len(lines) <= height:
            return lines + [Text()] * (self._tallest[place] - len(lines)), ""
        written = int(np.argmax(frame.born > 0))
        before = len(self._wrapped(parts[:written], [""] * written)) - 1 - _LINES_BEFORE
        first = min(max(0, before), len(lines) - height)
        where = f"lines {first + 1} to {first + height} of {len(lines)}"
        return lines[first : first + height], where

    def _style(self, born: int) -> str:
        if born == 0:
            return _GIVEN
        pictures = sum(step >= born for step in self._drawn)  # in which it was seen already
        return _FADING[pictures] if pictures < len(_FADING) else ""

    def _drawable(self, part: str) -> str:
        encoding = self._console.encoding
        return printable(part).encode(encoding, "replace").decode(encoding)

    def _wrapped(self, parts: list[str], styles: list[str]) -> list[Text]:
        text = Text(overflow="fold")
        for style, run in groupby(zip(styles, parts, strict=True), key=itemgetter(0)):
            text.append("".join(part for _, part in run), style=style)
        return list(text.wrap(self._console, self._width))

    @property
    def _width(self) -> int:
        return min(self._console.width, _WIDEST)

    def _status(self, frames: Sequence[Frame], note: str) -> Text:
        step, left, tokens = _numbers(frames)
        room = self._width - len(f"{step}  {left}    {tokens}  {note}")
        width = max(0, min(room, self._width // 4))
        done = round(width * (1 - max(frame.time for frame in frames)))
        full, empty = "=-" if self._console.options.ascii_only else "━─"
        bar = Text.assemble((full * done, _BAR), (empty * (width - done), "dim"))
        parts = (f"{step}  {left}  ", bar, f"  {tokens}  ", (note, "dim"))
        return Text.assemble(*parts, no_wrap=True, overflow="crop")


def _numbers(frames: Sequence[Frame]) -> tuple[str, str, str]:
    """Step, time and tokens in fixed widths, so that nothing moves when they change."""
    step = max(frame.step for frame in frames)
    left = max(frame.time for frame in frames)
    tokens = sum(len(frame.tokens) for frame in frames)
    return f"step {step:>4}", f"time {left:.3f}", f"{tokens:>5} tokens"
