import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import tokenizers
from hypothesis import given as forall
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from tokenizers import decoders, models

from didlm.data.tokenizer import Tokenizer
from didlm.display import watch
from didlm.display.pieces import pieces, printable
from didlm.display.trace import write_trace
from didlm.display.watch import Watch
from didlm.generate.results import Frame, Sample

STORY = (
    "Once upon a time there was a little dragon, café 漢字 🙂 <b>&amp;</b> [bold]hi[/bold] \x1b[31m"
)


@pytest.fixture(scope="module")
def stories():
    return Tokenizer.train_bpe([STORY] * 3, 340)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, "do", "not", "##ing", "play", ",", ".", "'", "s", ""]))
    return Tokenizer.load(path)


@pytest.fixture(scope="module")
def sentencepiece():
    names = ["<s>", "▁", "▁a", "b", *(f"<0x{byte:02X}>" for byte in "é漢🙂".encode())]
    library = tokenizers.Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, []))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    return Tokenizer(library)


@pytest.fixture
def every_frame(monkeypatch):
    monkeypatch.setattr(watch, "_REDRAW_EVERY", 0.0)
    monkeypatch.setattr(watch, "PLAIN_EVERY", 0.0)


def assert_refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def simulated(tokenizer, steps=20, seed=0, given="Once upon", deleted=0.05, each=4):
    """Frames of a text into which any tokens come at any place, and of which some go again."""
    rng = np.random.default_rng(seed)
    tokens = tokenizer.encode(given)
    born = np.zeros_like(tokens)
    frames = [Frame(0, 1.0, tokens, born)]
    for step in range(1, steps + 1):
        stays = (rng.random(len(tokens)) >= deleted) | (born == 0)
        tokens, born = tokens[stays], born[stays]
        places = rng.integers(0, len(tokens) + 1, rng.integers(0, each + 1))
        new = rng.integers(0, tokenizer.vocabulary, len(places))
        tokens, born = np.insert(tokens, places, new), np.insert(born, places, step)
        frames.append(Frame(step, 1 - step / steps, tokens, born))
    return frames


def sample_of(tokenizer, frames, number=0):
    last = frames[-1]
    text, tokens, born = tokenizer.decode(last.tokens), last.tokens.tolist(), last.born.tolist()
    return Sample(text, tokens, born, len(frames), len(frames), 0.1, 7, number, frames=frames)


def written(tokenizer, text, steps=10):
    """Frames of a text that is written from left to right."""
    tokens = tokenizer.encode(text)
    born = np.arange(len(tokens)) * steps // len(tokens) + 1
    return [
        Frame(step, 1 - step / steps, tokens[born <= step], born[born <= step])
        for step in range(steps + 1)
    ]


@forall(st.data())
@pytest.mark.parametrize("kind", ["stories", "bert", "sentencepiece"])
def test_pieces_joined_are_the_decoded_text(request, kind, data) -> None:
    tokenizer = request.getfixturevalue(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1)))
    parts = pieces(tokenizer, ids)
    assert len(parts) == len(ids)
    assert "".join(parts) == tokenizer.decode(ids)
    assert all(part == "" for part, number in zip(parts, ids, strict=True) if number == 0)


@forall(st.data())
@pytest.mark.parametrize("kind", ["stories", "bert"])
def test_pieces_of_the_usual_tokenizers_take_linear_time(request, kind, data) -> None:
    tokenizer = request.getfixturevalue(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("didlm.display.pieces._by_prefixes")
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)


def test_each_token_has_its_own_piece(stories, bert) -> None:
    ids = stories.encode("Once upon a time there was")
    assert pieces(stories, ids) == [stories.token_text(int(number)) for number in ids]
    assert pieces(bert, bert.encode("do not playing, s")) == [
        "do",
        " not",
        " play",
        "ing",
        ",",
        " s",
    ]
    assert pieces(bert, [2, 5, 3, 6]) == ["", "do", "", " not"]


def test_a_character_belongs_to_the_token_with_its_last_byte(sentencepiece) -> None:
    plain = Tokenizer.train_bpe(["ab"], 257)
    assert pieces(plain, plain.encode("é🙂")) == ["", "é", "", "", "", "🙂"]
    first, second = plain.encode("é").tolist()
    assert pieces(plain, [first, plain.bos, second]) == ["", "", "é"]
    assert pieces(plain, [first, *plain.encode("a"), second]) == ["\ufffd", "a", "\ufffd"]
    assert pieces(sentencepiece, [2, 4, 5, 3]) == ["a", "", "é", "b"]


def byte_level(names):
    library = tokenizers.Tokenizer(models.BPE(names, []))
    library.decoder = decoders.ByteLevel()
    return library


def test_tokens_added_as_text_have_pieces() -> None:
    library = byte_level({"<|bos|>": 0, "a": 1, "Ã": 2})
    library.add_tokens(["漢 é"])
    assert pieces(Tokenizer(library), [1, 2, 3, 1]) == ["a", "\ufffd", "漢 é", "a"]


def test_ids_without_a_token_have_no_text() -> None:
    holed = Tokenizer(byte_level({"<|bos|>": 0, "a": 1, "Ã": 3, "©": 4}))
    assert pieces(holed, [1, 3, 2, 4]) == ["a", "", "", "é"]


def test_pieces_of_an_unknown_id_are_refused(stories) -> None:
    with assert_refused("is not in the vocabulary"):
        pieces(stories, [stories.vocabulary + 1])


def test_what_is_printable_cannot_steer_a_terminal() -> None:
    assert printable("a\tb\n") == "a    b\n"
    assert printable("\x1b[0m\x07\r\x7f\u202e\u2028") == "␛[0m␇␍\ufffd\ufffd\ufffd"
    assert printable("naïve 漢 🙂\u200d") == "naïve 漢 🙂\u200d"


class Page(HTMLParser):
    """The elements of a page, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.title = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.lasttag == "script" and data.strip():
            self.scripts.append(data)
        if self.lasttag == "title":
            self.title += data.strip()


def page_of(tmp_path, samples, tokenizer, title="A title"):
    write_trace(tmp_path / "trace.html", samples, tokenizer, title)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.html"]
    return (tmp_path / "trace.html").read_text(encoding="utf-8")


def shown(data, sample, frame):
    """Texts and births of the tokens that the page shows at a frame, by the rule in its script."""
    alive = [token for token in sample["tokens"] if token[2] <= frame < token[3]]
    return "".join(data["texts"][token[0]] for token in alive), [token[1] for token in alive]


@pytest.mark.parametrize("deleted", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["stories", "bert"])
def test_the_page_shows_every_frame_of_every_sample(request, tmp_path, kind, deleted) -> None:
    tokenizer = request.getfixturevalue(kind)
    samples = [
        sample_of(tokenizer, simulated(tokenizer, seed=seed, given="do not", deleted=deleted), seed)
        for seed in range(3)
    ]
    data = json.loads(Page(page_of(tmp_path, samples, tokenizer)).scripts[0])
    assert len(data["samples"]) == 3
    for sample, there in zip(samples, data["samples"], strict=True):
        assert there["name"] == f"sample {sample.number} of seed 7"
        assert there["steps"] == [frame.step for frame in sample.frames]
        for number, frame in enumerate(sample.frames):
            text, born = shown(data, there, number)
            assert text == printable(tokenizer.decode(frame.tokens))
            assert born == frame.born.tolist()


def test_the_page_holds_each_token_once_while_it_lives(tmp_path, stories) -> None:
    frames = written(stories, "there was a little dragon " * 20)
    data = json.loads(Page(page_of(tmp_path, [sample_of(stories, frames)], stories)).scripts[0])
    assert len(data["samples"][0]["tokens"]) == len(frames[-1].tokens)
    assert len(data["texts"]) == len(set(frames[-1].tokens.tolist()))


@pytest.mark.parametrize("births", [1, 3])
def test_frames_that_do_not_follow_from_each_other_are_shown_too(tmp_path, stories, births) -> None:
    texts = ["a time", "there was", "a little dragon", "", "aaa", "a dragon aaaaa", "aa"]
    frames = [
        Frame(step, 1 - step / 6, tokens, np.arange(len(tokens)) % births)
        for step, tokens in enumerate(map(stories.encode, texts))
    ]
    data = json.loads(Page(page_of(tmp_path, [sample_of(stories, frames)], stories)).scripts[0])
    for number, text in enumerate(texts):
        assert shown(data, data["samples"][0], number)[0] == text


def test_no_text_can_break_out_of_the_page(tmp_path, stories) -> None:
    evil = "</script><script>alert(1)</script><!-- <script> --> __DATA__ __TITLE__ &lt;"
    plain = page_of(tmp_path, [sample_of(stories, written(stories, "a time"))], stories)
    page = page_of(tmp_path, [sample_of(stories, written(stories, evil))], stories, title=evil)
    assert Page(page).tags == Page(plain).tags
    assert Page(page).title == evil
    data = json.loads(Page(page).scripts[0])
    assert not set("<>&") & set(Page(page).scripts[0])
    assert shown(data, data["samples"][0], 10)[0] == evil
    assert page.count("</script>") == plain.count("</script>") == 2


def test_the_page_needs_nothing_from_outside(tmp_path, stories) -> None:
    page = page_of(tmp_path, [sample_of(stories, simulated(stories))], stories, title="")
    assert not re.search(r"https?://|url\(|@import", page)
    for _, attributes in Page(page).tags:
        assert not {"src", "href", "srcset"} & set(attributes)
    assert Page(page).title == "How a text was written"


def test_everything_to_operate_has_a_name(tmp_path, stories) -> None:
    page = page_of(tmp_path, [sample_of(stories, simulated(stories))], stories)
    tags = {attributes.get("id"): attributes for _, attributes in Page(page).tags}
    assert "aria-label" in tags["slider"]
    assert "aria-label" in tags["text"]
    assert tags["about"]["role"] == "status"
    assert len(re.findall(r"<label[^>]*>\w+\s+<select", page)) == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_of_the_page_is_javascript(tmp_path, stories) -> None:
    page = page_of(tmp_path, [sample_of(stories, simulated(stories))], stories)
    (tmp_path / "page.js").write_text(Page(page).scripts[1], encoding="utf-8")
    assert subprocess.run(["node", "--check", tmp_path / "page.js"]).returncode == 0


def test_the_animation_has_a_picture_for_every_frame_and_holds_the_last(tmp_path, stories) -> None:
    image = pytest.importorskip("PIL.Image")
    write_trace(tmp_path / "a.GIF", [sample_of(stories, simulated(stories))], stories, "[b] \x1b")
    with image.open(tmp_path / "a.GIF") as animation:
        assert animation.n_frames == 21
        assert animation.info["loop"] == 0
        assert animation.info["duration"] < 1000
        size = animation.size
        animation.seek(20)
        assert animation.info["duration"] == 2000
        assert animation.size == size
    assert [file.name for file in tmp_path.iterdir()] == ["a.GIF"]


def test_long_animations_skip_frames_and_very_long_texts_are_cut(tmp_path, stories) -> None:
    image = pytest.importorskip("PIL.Image")
    long = written(stories, "a little dragon\n" * 100, steps=300)
    short = written(stories, "once\n" * 3, steps=3)
    write_trace(tmp_path / "a.gif", [sample_of(stories, long), sample_of(stories, short)], stories)
    with image.open(tmp_path / "a.gif") as animation:
        assert 50 <= animation.n_frames <= 64
        assert animation.size[1] < 1800
    assert (tmp_path / "a.gif").stat().st_size < 10_000_000


def test_an_animation_writes_only_what_there_is(tmp_path, stories) -> None:
    image = pytest.importorskip("PIL.Image")
    nothing = [Frame(step, 1 - step, np.zeros(0, int), np.zeros(0, int)) for step in (0, 1)]
    for title in ("", "two\nlines"):
        write_trace(tmp_path / "a.gif", [sample_of(stories, nothing)], stories, title)
        with image.open(tmp_path / "a.gif") as animation:
            assert animation.n_frames == 2


@pytest.mark.parametrize("text", ["a little dragon " * 30, "dragon" * 70, "Once\n" * 9, " " * 300])
def test_lines_and_titles_do_not_reach_into_the_margin(tmp_path, stories, text) -> None:
    image = pytest.importorskip("PIL.Image")
    write_trace(tmp_path / "a.gif", [sample_of(stories, written(stories, text))], stories, text)
    with image.open(tmp_path / "a.gif") as animation:
        animation.seek(animation.n_frames - 1)
        right = animation.size[0] - 40
        margin = animation.convert("RGB").crop((right, 0, *animation.size))
        assert len(margin.getcolors()) == 1


def test_new_given_and_old_tokens_have_colours_of_their_own(tmp_path, stories) -> None:
    image = pytest.importorskip("PIL.Image")
    tokens = stories.encode("Once Once Once")
    born = np.arange(len(tokens)) % 3 * 20
    frames = [Frame(40, 0.5, tokens, born)]
    write_trace(tmp_path / "a.gif", [sample_of(stories, frames)], stories)
    with image.open(tmp_path / "a.gif") as animation:
        colours = {colour for _, colour in animation.convert("RGB").getcolors()}
    assert {(125, 183, 232), (255, 181, 69), (216, 213, 205)} <= colours


def test_without_pillow_an_animation_is_refused(tmp_path, stories, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "didlm.display.gif", raising=False)
    with assert_refused("an animation needs Pillow: pip install 'didlm[plots]'"):
        write_trace(tmp_path / "a.gif", [sample_of(stories, simulated(stories))], stories)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["trace.html", "trace.gif"])
def test_a_failure_leaves_the_old_file_alone(tmp_path, stories, name) -> None:
    (tmp_path / name).write_text("old")
    wrong = [Frame(0, 1.0, np.array([stories.vocabulary + 1]), np.array([0]))]
    sample = Sample("", [], [], 0, 0, 0.0, 0, 0, frames=wrong)
    with assert_refused("is not in the vocabulary"):
        write_trace(tmp_path / name, [sample], stories)
    assert (tmp_path / name).read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_trace_is_moved_to_its_place_when_it_is_whole(tmp_path, stories, monkeypatch) -> None:
    (tmp_path / "a.html").write_text("old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_trace(tmp_path / "a.html", [sample_of(stories, simulated(stories))], stories)
    assert (tmp_path / "a.html").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_impossible_traces_are_refused(tmp_path, stories) -> None:
    samples = [sample_of(stories, simulated(stories))]
    bare = Sample("", [], [], 0, 0, 0.0, 0, 0)
    (tmp_path / "folder.html").mkdir()
    with assert_refused(f"to {tmp_path / 'a.mp4'}: its name must end with .html or .gif"):
        write_trace(tmp_path / "a.mp4", samples, stories)
    with assert_refused(f"there is no folder {tmp_path / 'nowhere'}"):
        write_trace(tmp_path / "nowhere" / "a.html", samples, stories)
    with assert_refused("it is a folder"):
        write_trace(tmp_path / "folder.html", samples, stories)
    with assert_refused("there are no samples to trace"):
        write_trace(tmp_path / "a.html", [], stories)
    with assert_refused("sample 1 has no frames; generate it with trace=True"):
        write_trace(tmp_path / "a.html", [*samples, bare], stories)


def terminal(width=40, height=12):
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=width,
        height=height,
        legacy_windows=False,
        _environ={"TERM": "xterm"},
    )


ERASED_AT_THE_END = r"\n\x1b\[\?25h\r((?:\x1b\[1A\x1b\[2K)+)$"  # with the cursor given back


def pictures(console):
    """What was drawn one over the other, without colours."""
    drawn = re.sub(ERASED_AT_THE_END, "", console.file.getvalue())
    drawn = re.split(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*", drawn)
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", picture) for picture in drawn]


def watched(console, tokenizer, frames, copies=1, **settings):
    with Watch(tokenizer, console, **settings) as display:
        for frame in frames:
            display.show([replace(frame, number=number) for number in range(copies)])
    return console.file.getvalue()


@pytest.mark.usefixtures("every_frame")
def test_the_last_picture_is_the_text_and_its_numbers(stories) -> None:
    console = terminal(width=80)
    frames = written(stories, "Once upon a time [bold]there[/bold]\nwas a dragon 🙂")
    watched(console, stories, frames)
    *_, last = pictures(console)
    lines = [line.rstrip() for line in last.splitlines()]
    assert lines[:2] == ["Once upon a time [bold]there[/bold]", "was a dragon 🙂"]
    count = len(frames[-1].tokens)
    assert lines[3] == f"step   10  time 0.000  {'━' * 20}  {count:>5} tokens"


@pytest.mark.usefixtures("every_frame")
@pytest.mark.parametrize("copies", [1, 3])
def test_at_the_end_the_picture_is_erased(stories, copies) -> None:
    console = terminal(width=60, height=20)
    watched(console, stories, written(stories, "Once\nupon a time\n🙂"), copies)
    *_, last = pictures(console)
    (erased,) = re.findall(ERASED_AT_THE_END, console.file.getvalue())
    assert erased.count("\x1b[1A\x1b[2K") == last.count("\n") + 1


@pytest.mark.usefixtures("every_frame")
def test_tokens_are_coloured_by_their_age(stories) -> None:
    console = terminal()
    tokens = stories.encode("Once upon a time")[:3]
    # Six steps pass between two pictures: what came since the last one is new.
    first = Frame(3, 0.9, tokens[[0, 2]], np.array([0, 1]))
    watched(console, stories, [first] * 5 + [Frame(9, 0.5, tokens, np.array([0, 4, 1]))])
    text = console.file.getvalue()
    given, new, old = pieces(stories, tokens)
    assert f"\x1b[38;2;61;155;214m{given}\x1b[0m" in text
    assert f"\x1b[1;38;2;240;140;0m{new}\x1b[0m{old}" in text


@pytest.mark.usefixtures("every_frame")
@pytest.mark.parametrize("copies", [1, 2, 7])
@pytest.mark.parametrize(("width", "height"), [(40, 12), (100, 30), (5, 3), (1, 1), (20, 5)])
def test_no_picture_is_larger_than_the_screen(stories, copies, width, height) -> None:
    console = terminal(width, height)
    watched(console, stories, simulated(stories, steps=60, each=30), copies)
    for picture in pictures(console)[1:]:
        assert len(picture.splitlines()) <= height
        assert max(map(cell_len, picture.splitlines())) <= width


@pytest.mark.usefixtures("every_frame")
def test_a_picture_never_gets_lower(stories) -> None:
    console = terminal()
    frames = written(stories, "Once upon a time there was a little dragon " * 4)
    watched(console, stories, frames + frames[::-1])
    heights = [len(picture.splitlines()) for picture in pictures(console)]
    assert heights[1:] == sorted(heights[1:])


@pytest.mark.usefixtures("every_frame")
def test_of_a_long_text_the_window_shows_where_the_writing_begins(stories) -> None:
    console = terminal()
    tokens = stories.encode("there was a dragon\n" * 30 + "Once\n" + "a time\n" * 30)
    born = np.zeros(len(tokens), int)
    born[len(stories.encode("there was a dragon\n" * 30)) :] = 1
    watched(console, stories, [Frame(1, 0.5, tokens, born)])
    *_, last = pictures(console)
    lines = [line.rstrip() for line in last.splitlines()]
    assert lines[:4] == ["there was a dragon", "there was a dragon", "Once", "a time"]
    assert len(lines) == 11


@pytest.mark.usefixtures("every_frame")
def test_several_texts_share_the_screen(stories) -> None:
    console = terminal(width=60, height=15)
    watched(console, stories, written(stories, "a little dragon"), copies=5)
    *_, last = pictures(console)
    assert [line[:6] for line in last.splitlines() if line.startswith("text")] == [
        f"text {number}" for number in (1, 2, 3)
    ]
    assert "3 of 5 texts" in last


@pytest.mark.usefixtures("every_frame")
def test_odd_texts_cannot_steer_the_terminal(stories) -> None:
    console = terminal()
    text = watched(console, stories, written(stories, "a\x1b[31m\x07\r\x00\x9b2J\u202e [/] \ud7ff"))
    assert "\x1b[31m" not in text
    assert not set("\x07\x00\x9b\u202e") & set(text)
    assert "a␛[31m␇␍␀" in pictures(console)[-1]


@pytest.mark.usefixtures("every_frame")
def test_a_terminal_that_knows_only_ascii_is_no_problem(stories) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=True, width=60, _environ={"TERM": "xterm"})
    with Watch(stories, console) as display:
        display.show([written(stories, "café 漢")[-1]])
    file.flush()
    assert re.search(rb"caf\? \S*\?", file.buffer.getvalue())
    assert b"====" in file.buffer.getvalue()


def test_a_fast_model_is_not_slowed_down_but_its_last_frame_is_drawn(stories, monkeypatch) -> None:
    monkeypatch.setattr(watch, "_REDRAW_EVERY", 3600.0)
    console = terminal(width=60)
    watched(console, stories, written(stories, "Once upon a time", steps=50))
    drawn = re.findall(r"step +(\d+)", console.file.getvalue())
    assert list(dict.fromkeys(drawn)) == ["0", "50"]


@pytest.mark.usefixtures("every_frame")
def test_there_is_a_pause_after_each_picture_if_wanted(stories, monkeypatch) -> None:
    pauses = []
    monkeypatch.setattr(watch.time, "sleep", pauses.append)
    watched(terminal(), stories, written(stories, "a time", steps=5), seconds_per_frame=60.0)
    assert pauses[0] == 0
    assert all(0 < pause <= 60 for pause in pauses[1:])
    pauses.clear()
    watched(Console(file=io.StringIO()), stories, written(stories, "a"), seconds_per_frame=60.0)
    assert not pauses


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end(
    stories, monkeypatch
) -> None:
    frames = written(stories, "Once upon a time", steps=5)
    last = f"step    5  time 0.000  {len(frames[-1].tokens):>5} tokens\n"
    console = Console(file=io.StringIO(), width=20)
    assert watched(console, stories, frames) == last
    monkeypatch.setattr(watch, "PLAIN_EVERY", 0.0)
    console = Console(file=io.StringIO(), width=20)
    lines = watched(console, stories, frames).splitlines(keepends=True)
    assert len(lines) == 6
    assert lines[-1] == last


def test_watching_nothing_shows_nothing(stories) -> None:
    console = Console(file=io.StringIO())
    with Watch(stories, console) as display:
        display.show([])
    assert console.file.getvalue() == ""


def test_an_error_while_watching_comes_through_and_gives_the_cursor_back(stories) -> None:
    def interrupted():
        yield from written(stories, "a time")
        raise KeyboardInterrupt

    console = terminal()
    with pytest.raises(KeyboardInterrupt):
        watched(console, stories, interrupted())
    assert re.search(ERASED_AT_THE_END, console.file.getvalue())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_impossible_pauses_are_refused(stories, seconds) -> None:
    with assert_refused(f"seconds_per_frame must be 0 or more: got {seconds}"):
        Watch(stories, seconds_per_frame=seconds)
