"use strict";
// The page of the service: asks for a text, shows how it grows, and lets one go back in time.

const $ = id => document.getElementById(id);
const FADE = 900; // milliseconds until the last tokens look like the others
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const HAS_BLANK = /(^|[^\\])\[(_|\.\.\.(\d+(-\d+)?)?)\]/;

// ---------------------------------------------------------------- the text and how it came

// Tokens in the order of the finished text; each knows the step at which it came.
let tokens = [];  // { id, text, born, span, open: may something come right after it? }
let opening = true;  // whether something may come before all of them
let times = [1];  // of the steps, from 0 on
let shown = 0;  // the step that is shown
let whole = null;  // the finished text

const last = () => times.length - 1;
const there = () => tokens.filter(token => token.born <= shown);
const fade = () => Math.max(5, Math.round(last() / 16));

function begin({ tokens: ids, pieces, open }) {
  [times, shown, whole] = [[1], 0, null];
  opening = open[0];
  tokens = ids.map((id, i) => made(id, pieces[i], 0, open[i + 1]));
  $("text").replaceChildren(...tokens.map(token => token.span));
  $("text").style.minHeight = "";
  heat.clear();
}

function made(id, text, born, open) {
  const span = document.createElement("span");
  span.className = born === 0 ? "token given" : "token";
  span.tabIndex = -1;
  const token = { id, text, born, open, span };
  write(token, text);
  return token;
}

function write(token, text) {
  token.text = text;
  const word = document.createElement("b");
  const [, blank, rest] = /^(\s*)([^]*)$/.exec(text);
  word.textContent = rest;
  token.span.replaceChildren(blank, word);
}

// Positions count the tokens that are there after the step, and nothing ever leaves.
function insert({ step, time, insert: added }) {
  times[step] = time;
  for (const [place, id, text] of added) {
    const token = made(id, text, step, true);
    token.span.hidden = true;
    const after = tokens[place];
    $("text").insertBefore(token.span, after ? after.span : null);
    tokens.splice(place, 0, token);
  }
}

function end({ choices: [choice], seed }) {
  whole = choice.text;
  // Characters of several tokens are whole only now.
  choice.pieces.forEach((piece, i) => { if (tokens[i].text !== piece) write(tokens[i], piece); });
  $("seed").placeholder = `${seed} (the last one)`;
}

// ---------------------------------------------------------------- what is shown

function show(step, moving = false) {
  shown = step;
  for (const { span, born } of tokens) {
    const hidden = born > step;
    if (span.hidden !== hidden) {
      span.hidden = hidden;
      span.classList.toggle("come", moving && !hidden && !calm);
    }
    const glow = born === 0 || hidden ? 0 : Math.max(0, 1 - (step - born) / fade());
    if (span.glow !== glow) {
      span.glow = glow;
      span.classList.toggle("lit", glow > 0);
      span.style.setProperty("--glow", glow);
    }
  }
  const length = there().length;
  const words = `step ${step} of ${last()} · time ${times[step].toFixed(3)} · ${length} tokens`;
  $("numbers").textContent = words;
  $("time").max = last();
  $("time").value = step;
  $("time").setAttribute("aria-valuetext", words);
  draw();
  heat.update();
}

// What came last fades too when all is written and nothing moves.
function settle() {
  if (player.running || whole === null || shown < last()) return;
  for (const { span } of tokens) {
    span.glow = 0;
    span.classList.remove("lit");
  }
}

function draw() {
  const change = new Array(times.length).fill(0);
  for (const { born } of tokens) change[born]++;
  let length = 0;
  const lengths = change.map(by => length += by), most = Math.max(1, length);
  const x = step => 1000 * step / Math.max(1, last());
  const curve = points => "M" + points
    .map((length, step) => `${x(step).toFixed(1)} ${(97 - 94 * length / most).toFixed(1)}`).join("L");
  $("plot").querySelector(".all").setAttribute("d", curve(lengths));
  $("plot").querySelector(".past").setAttribute("d", curve(lengths.slice(0, shown + 1)));
  for (const side of ["x1", "x2"]) $("plot").querySelector("line").setAttribute(side, x(shown));
  $("plot").setAttribute("aria-label",
    `Length against step: ${lengths[0]} tokens at first, ${length} at step ${last()}`);
}

function describe(span) {
  const token = tokens.find(token => token.span === span);
  const words = !token ? "Point at a token to see when it came."
    : `“${token.text.replace(/\n/g, "⏎")}” `
      + (token.born === 0 ? "was given" : `came at step ${token.born}`);
  if ($("about").textContent !== words) $("about").textContent = words;
}

// ---------------------------------------------------------------- moving through time

const player = { running: false, live: false, from: 0, at: 0, request: 0 };

// Steps come in bursts, and late: they are shown evenly, a little behind.
function advance(now) {
  const rate = player.live ? Math.max(20, (last() - shown) * 4) : Math.max(10, last() / 9);
  const due = Math.min(last(), player.from + Math.floor((now - player.at) / 1000 * rate));
  if (player.live && due > shown) [player.from, player.at] = [due, now];
  if (due > shown) show(due, true);
  if (!player.live && shown === last()) return play(false);
  player.request = requestAnimationFrame(advance);
}

function play(running, live = player.live) {
  cancelAnimationFrame(player.request);
  Object.assign(player, { running, live });
  $("play").textContent = running ? "Pause" : "Play";
  if (!running) {
    setTimeout(settle, FADE);
    return;
  }
  if (!live && shown === last()) show(0);
  [player.from, player.at] = [shown, performance.now()];
  player.request = requestAnimationFrame(advance);
}

function goTo(step) {
  play(false);
  show(Math.min(Math.max(step, 0), last()));
}

// ---------------------------------------------------------------- where it wants to insert

const heat = {
  on: false, timer: 0, asked: "", answers: new Map(),

  clear() { this.answers.clear(); this.asked = ""; this.hide(); },
  hide() {
    for (const gap of document.querySelectorAll("#text .gap")) gap.remove();
    $("tip").hidden = true;
  },

  // While the text moves nothing is asked: rates of a moment that is gone would be shown.
  update() {
    clearTimeout(this.timer);
    this.hide();
    if (!this.on) return;
    this.timer = setTimeout(() => this.ask(), player.running ? 400 : 60);
  },

  async ask() {
    const step = shown, now = there();
    let gaps = this.answers.get(step);
    if (!gaps) {
      // A gap is open if one of the gaps it has become was: only given text can close one.
      const open = [opening || now[0]?.born > 0, ...now.map((token, i) =>
        token.open || token.born > 0 || now[i + 1]?.born > 0)];
      try {
        const answer = await call("v1/gaps", {
          tokens: now.map(token => token.id), given: now.map(token => token.born === 0),
          open, t: Math.max(times[step], 1 / 256), top: 5,
        });
        gaps = (await answer.json()).gaps.map((gap, i) => ({ ...gap, open: open[i] }));
      } catch (error) { return fail(error); }
      this.answers.set(step, gaps);
    }
    if (this.on && shown === step && there().length === now.length) this.paint(gaps, now);
  },

  paint(gaps, now) {
    this.hide();
    const most = Math.max(...gaps.map(gap => gap.rate), 1e-9);
    gaps.forEach((gap, i) => {
      if (!gap.open) return;
      const mark = document.createElement("i");
      mark.className = "gap";
      mark.tabIndex = -1;
      // Between much and little there are orders of magnitude.
      mark.style.setProperty("--rate", Math.sqrt(gap.rate / most));
      mark.gap = gap;
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", `a gap that lacks ${gap.rate.toFixed(2)} tokens: `
        + gap.likely.map(one => one.text.trim() || "space").join(", "));
      if (i === 0) $("text").prepend(mark);
      else now[i - 1].span.after(mark);
    });
  },

  tell(mark) {
    const { rate, likely } = mark.gap, table = document.createElement("table");
    for (const { text, probability } of likely) {
      const row = table.insertRow();
      row.insertCell().textContent = text.replace(/\n/g, "⏎").replace(/^ /, "␣");
      row.insertCell().textContent = `${(100 * probability).toFixed(probability < 0.1 ? 1 : 0)} %`;
    }
    const line = document.createElement("div");
    line.textContent = `${rate < 0.005 ? "hardly any" : rate.toFixed(2)} tokens missing here`;
    $("tip").replaceChildren(line, table);
    $("tip").hidden = false;
    const box = mark.getBoundingClientRect(), tip = $("tip").getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left - tip.width / 2), innerWidth - tip.width - 8);
    const above = box.top - tip.height - 8;
    $("tip").style.left = `${left + scrollX}px`;
    $("tip").style.top = `${(above > 4 ? above : box.bottom + 8) + scrollY}px`;
  },
};

// ---------------------------------------------------------------- talking to the service

async function call(path, body, signal) {
  const headers = { "content-type": "application/json" };
  if ($("token").value) headers.authorization = `Bearer ${$("token").value}`;
  const method = body ? "POST" : "GET";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the service cannot be reached");
  }
  if (answer.ok) return answer;
  $("key").hidden &&= answer.status !== 401;
  const said = await answer.json().catch(() => null);
  throw new Error(said?.error?.message ?? `the service answered ${answer.status}`);
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const found = /^event: (\w+)\ndata: (.*)$/.exec(block);
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}

function fail(error) {
  if (error.name === "AbortError") return;
  const words = error.message;
  $("error").textContent = words[0].toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");
  $("error").hidden = false;
}

// ---------------------------------------------------------------- asking for a text

const SETTINGS = {
  steps: value => Math.round(2 ** value),
  temperature: Number,
  top_p: Number,
};
const value = name => SETTINGS[name]($(name).value);

let writing = null;  // what stops it

let met = false;
const suggested = {};  // where sliders stand that show what the model suggests, as near as they can

// What is served, and how it suggests to be asked; a slider that was moved stays where it is.
async function meet() {
  const answer = await call("v1/models");
  const { data: [{ id, defaults }] } = await answer.json();
  $("model").textContent = `This is “${id}”.`;
  for (const name of Object.keys(SETTINGS).filter(name => name in defaults)) {
    const moved = $(name).value !== $(name).defaultValue;
    $(name).defaultValue = defaults[name];
    $(name).dispatchEvent(new Event("input"));
    if (!moved) suggested[name] = $(name).value;
  }
  met = true;
}

function wanted() {
  const template = $("template").value, seed = $("seed").value.trim();
  return {
    template: HAS_BLANK.test(template) ? template : `${template}[...]`,
    stream: true,
    ...Object.fromEntries(Object.keys(SETTINGS)
      .filter(name => $(name).value !== suggested[name]).map(name => [name, value(name)])),
    ...seed && { seed: Number(seed) },
  };
}

async function ask() {
  writing = new AbortController();
  $("error").hidden = true;
  $("write").textContent = "Stop";
  $("status").textContent = "Waiting for its turn …";
  for (const id of ["copy", "save"]) $(id).disabled = true;
  let error = null;
  try {
    if (!met) await meet();
    const answer = await call("v1/infill", wanted(), writing.signal);
    for await (const [name, data] of events(answer.body)) {
      if (name === "start") {
        begin(data);
        $("result").hidden = false;
        show(0);
        reveal();
        play(true, true);
      } else if (name === "step") {
        insert(data);
        $("status").textContent = "Writing …";
      } else if (name === "done") end(data);
      else if (name === "error") throw new Error(data.error.message);
    }
    if (whole === null) throw new Error("the service broke off");
  } catch (problem) { error = problem; }
  finish(error);
}

// On a small screen the text would grow where nobody sees it.
function reveal() {
  const { top } = $("result").getBoundingClientRect();
  if (top > innerHeight / 2) scrollBy({ top: top - 12, behavior: calm ? "auto" : "smooth" });
}

function finish(error) {
  writing = null;
  $("write").textContent = "Write";
  $("status").textContent = !error ? "" : error.name === "AbortError" ? "Stopped." : "";
  if (error) fail(error);
  if (calm) goTo(last());
  play(player.running && shown < last(), false);
  for (const id of ["copy", "save"]) $(id).disabled = !tokens.length;
}

// ---------------------------------------------------------------- keeping it

async function copy() {
  const text = there().map(token => token.text).join("");
  try {
    await navigator.clipboard.writeText(text);
    $("status").textContent = "Copied.";
  } catch { fail(new Error("the browser does not let this page copy: select the text instead")); }
}

async function save() {
  $("save").disabled = true;
  $("status").textContent = "Drawing …";
  try {
    const answer = await call("v1/animation", {
      tokens: tokens.map(token => token.id), born: tokens.map(token => token.born), times,
    });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = "story.gif";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } catch (error) { fail(error); }
  $("status").textContent = "";
  $("save").disabled = false;
}

// ---------------------------------------------------------------- keys, clicks, sliders

function walk(by) {
  const kind = heat.on ? ".gap" : ".token:not([hidden])";
  const all = [...$("text").querySelectorAll(kind)];
  const at = all.indexOf(document.activeElement);
  all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by]?.focus();
}

for (const name of Object.keys(SETTINGS)) {
  const say = () => { $(`${name}-value`).textContent = value(name); };
  $(name).addEventListener("input", say);
  say();
}
$("form").addEventListener("submit", event => {
  event.preventDefault();
  if (writing) writing.abort();
  else ask();
});
$("template").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("blank").addEventListener("click", () => {
  const area = $("template");
  area.setRangeText("[...]", area.selectionStart, area.selectionEnd, "end");
  area.focus();
});
$("examples").addEventListener("click", ({ target }) => {
  if (target.dataset.template) $("template").value = target.dataset.template;
});
$("play").addEventListener("click", () => play(!player.running));
$("time").addEventListener("input", () => goTo(Number($("time").value)));
$("heat").addEventListener("change", () => { heat.on = $("heat").checked; heat.update(); });
$("copy").addEventListener("click", copy);
$("save").addEventListener("click", save);
for (const event of ["mouseover", "focusin", "click"])
  $("text").addEventListener(event, ({ target }) => {
    if (target.gap) heat.tell(target);
    else {
      $("tip").hidden = true;
      describe(target.closest(".token"));
    }
  });
for (const event of ["mouseleave", "focusout"])
  $("text").addEventListener(event, () => { $("tip").hidden = true; describe(null); });
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("result").hidden) return;
  if (event.key === "Escape") { $("tip").hidden = true; return; }
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === " " && !event.target.closest("button, input, textarea")) play(!player.running);
  else if (by && $("text").contains(event.target)) walk(by);
  else if (by && !event.target.closest("input, textarea")) goTo(shown + by);
  else return;
  event.preventDefault();
});

describe(null);
meet().catch(() => {});  // whoever asks for a text is told
