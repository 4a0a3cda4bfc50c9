"""The page in a real browser: it writes, animates, infills, replays, and says what is wrong."""

import os
import shutil
from collections.abc import Iterator

import pytest

from serving import Service, serving, tiny_model

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    # Of its own, in Python's newest versions.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:playwright"),
]
WIDTHS = {"desktop": (1100, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    model = tiny_model()
    model.defaults = {"top_p": 0.8}
    with serving(model) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Its sandbox needs rights that containers do not give; it sees nothing but our own page.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


both_widths = pytest.mark.parametrize("width", WIDTHS)


@pytest.fixture
def width() -> str:
    return "desktop"


@pytest.fixture
def page(width, browser, service):
    """The page, which must not have complained when the test is over."""
    across, down = WIDTHS[width]
    context = browser.new_context(
        viewport={"width": across, "height": down},
        color_scheme="dark" if width == "phone" else "light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page, wrong, asked = context.new_page(), [], []
    page.set_default_timeout(20_000)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else 0)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda each: asked.append(each.url))
    page.goto(service.url)
    expect(page.locator("#model")).to_have_text("This is “tiny”.")
    page.locator("#steps").fill("3")  # of which two are raised to the power
    yield page
    context.close()
    # The browser itself notes errors of the network, which some tests ask for.
    assert [line for line in wrong if "Failed to load resource" not in line] == []
    assert all(url.startswith((service.url, "data:", "blob:")) for url in asked)


def write(page, template: str, seed: int = 3) -> None:
    page.fill("#template", template)
    page.fill("#seed", str(seed))
    page.click("#write")
    done(page)


def done(page) -> None:
    expect(page.locator("#result")).to_be_visible()
    expect(page.locator("#write")).to_have_text("Write")
    expect(page.locator("#play")).to_have_text("Play")


def shown(page) -> str:
    return "".join(page.locator("#text .token:not([hidden])").all_text_contents())


def test_it_writes_what_python_writes(page, service) -> None:
    expect(page.locator("#top_p-value")).to_have_text("0.8")  # what the model suggests
    write(page, "Once upon a time")
    [sample] = service.model.infill(
        "Once upon a time[...]", seed=3, steps=8, temperature=1.0, top_p=0.8
    )
    assert shown(page) == sample.text
    expect(page.locator("#numbers")).to_contain_text(f"step {sample.steps} of {sample.steps}")
    assert "".join(page.locator("#text .given").all_text_contents()) == "Once upon a time"
    page.click("#copy")
    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == sample.text


@both_widths
def test_it_is_seen_to_grow(page) -> None:
    lengths, lit = page.evaluate(
        """async () => {
          const lengths = new Set(), text = document.getElementById("text");
          let lit = 0;
          const look = () => {
            lengths.add(text.querySelectorAll(".token:not([hidden])").length);
            lit = Math.max(lit, text.querySelectorAll(".token.lit").length);
          };
          const watch = new MutationObserver(look);
          watch.observe(text, { childList: true, subtree: true, attributes: true });
          document.getElementById("template").value = "Once [...] happily.";
          document.getElementById("seed").value = "3";
          document.getElementById("form").requestSubmit();
          const play = document.getElementById("play");
          const until = async (words) => {
            while (play.textContent !== words) await new Promise(go => setTimeout(go, 20));
          };
          await until("Pause");
          await until("Play");
          return [[...lengths], lit];
        }"""
    )
    assert len(lengths) > 2
    assert 0 < lit < max(lengths)  # new tokens glow for a while
    expect(page.locator("#text .lit")).to_have_count(0)  # and what came last does too


def test_blanks_are_filled_and_time_goes_back(page, service) -> None:
    write(page, "Once [...4-6] a time [_] happiness")
    final = shown(page)
    assert final.startswith("Once")
    assert " a time" in final
    assert final.endswith(" happiness")
    time = page.locator("#time")
    time.fill("0")
    assert shown(page).split() == ["Once", "a", "time", "happiness"]
    expect(page.locator("#numbers")).to_contain_text("step 0 of")
    time.press("ArrowRight")
    expect(page.locator("#numbers")).to_contain_text("step 1 of")
    page.locator("#about").click()
    page.keyboard.press(" ")  # plays on
    expect(page.locator("#numbers")).to_contain_text(f"step {time.get_attribute('max')} of")
    assert shown(page) == final
    assert page.locator("#plot .past").get_attribute("d").count("L") == int(
        time.get_attribute("max")
    )


@both_widths
def test_gaps_are_hot_and_name_their_tokens(page) -> None:
    write(page, "Once upon [...] happily.")
    page.locator("#time").fill("2")
    page.check("#heat")
    marks = page.locator("#text .gap")
    expect(marks.first).to_be_visible()
    # Inside of what is given nothing can come.
    assert marks.count() < page.locator("#text .token:not([hidden])").count()
    marks.first.hover()
    expect(page.locator("#tip")).to_contain_text("missing here")
    assert page.locator("#tip tr").count() == 5
    box, width = page.locator("#tip").bounding_box(), page.viewport_size["width"]
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    page.locator("#text").focus()
    page.keyboard.press("ArrowRight")  # walks to the first gap
    expect(page.locator("#tip")).to_be_visible()
    page.uncheck("#heat")
    expect(marks).to_have_count(0)


def test_it_can_be_used_without_a_mouse(page) -> None:
    page.locator("#template").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("Once ")
    page.keyboard.press("Control+Enter")
    done(page)
    assert shown(page).startswith("Once")
    page.locator("#text").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#about")).to_have_text("“Once” was given")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "save":
            break
    else:
        raise AssertionError("the keyboard does not get to the last button")


def test_an_animation_is_downloaded(page) -> None:
    write(page, "Once upon a time")
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "story.gif"
    assert download.value.path().read_bytes().startswith(b"GIF89a")


def test_the_service_is_quoted_where_it_refuses(page) -> None:
    page.fill("#template", "[...9-2]")
    page.click("#write")
    expect(page.locator("#error")).to_contain_text("A blank of at least 9 and at most 2 tokens is")
    expect(page.locator("#write")).to_have_text("Write")
    write(page, "Once")
    expect(page.locator("#error")).to_be_hidden()


def test_a_service_that_is_gone_is_said_to_be(page) -> None:
    page.route("**/v1/infill", lambda route: route.abort())
    page.click("#write")
    expect(page.locator("#error")).to_have_text("The service cannot be reached.")


@both_widths
def test_nothing_sticks_out(page) -> None:
    write(page, "Once upon a time")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= page.viewport_size["width"]


def test_a_token_is_asked_for(browser) -> None:
    """And what the model suggests is known only then; a slider that was moved stays there."""
    model = tiny_model()
    model.defaults = {"top_p": 0.83, "temperature": 0.9}
    with serving(model, token="secret", loopback=False) as service:
        page = browser.new_page()
        page.goto(service.url)
        page.fill("#temperature", "1.2")
        page.click("#write")
        expect(page.locator("#error")).to_contain_text("needs its token")
        page.fill("#token", "secret")
        with page.expect_request("**/v1/infill") as request:
            page.click("#write")
        assert request.value.post_data_json["temperature"] == 1.2
        assert "top_p" not in request.value.post_data_json  # which leaves it to the model
        expect(page.locator("#top_p-value")).to_have_text("0.83")
        done(page)
        expect(page.locator("#model")).to_have_text("This is “tiny”.")
        page.close()
