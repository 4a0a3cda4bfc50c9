"""What `didlm generate` and `didlm infill` do: write, show, and leave files."""

import json as json_format
import sys
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from didlm.display.trace import check_trace, write_trace
from didlm.display.watch import Watch
from didlm.files import check_place, write_text
from didlm.generate.results import Sample
from didlm.generate.template import Parts
from didlm.pretrained import load


def write_for_user(
    parts: Parts,
    model: str,
    num: int,
    seed: int | None,
    batch_size: int | None,
    device: str,
    dtype: str,
    json: Path | None,
    watch: bool,
    trace: Path | None,
    ban: list[str] | None,
    force: list[str] | None,
    **controls: Any,
) -> None:
    """Fill a template with a model; print the texts, and write the files that are asked for.

    Args:
        parts: the texts and blanks of the template.
        model: its folder, shipped name or hub id.
        num: how many texts.
        seed: of all draws.
        batch_size: how many texts are written together.
        device: where the network runs.
        dtype: its precision.
        json: file for one JSON object a line.
        watch: whether to show the texts while they grow.
        trace: file for the way they grew, .html or .gif.
        ban: tokens that must not be inserted.
        force: texts that must occur.
        **controls: see `didlm.generate.controls.Controls`.
    """
    for file in (json, trace):  # found out before the work, not after it
        if file is not None:
            check_place(file)
    if trace is not None:
        check_trace(trace)
    if json is not None and trace is not None and json.resolve() == trace.resolve():
        raise ValueError(f"{json} cannot hold both the texts and their trace: name two files")
    loaded = load(model, device, dtype)
    controls |= {"banned": ban or (), "forced": force or ()}
    with Watch(loaded.tokenizer) if watch else nullcontext() as display:
        samples = loaded.infill(
            parts,
            num,
            seed,
            batch_size,
            display.show if display else None,
            trace is not None,
            **controls,
        )
    if json is not None:
        lines = [json_format.dumps(sample.line(), ensure_ascii=False) for sample in samples]
        write_text(json, "\n".join(lines) + "\n")
    if trace is not None:
        write_trace(trace, samples, loaded.tokenizer)
    if isinstance(sys.stdout, TextIOWrapper):  # what it cannot show must not stop it
        sys.stdout.reconfigure(errors="replace")
    print("\n\n".join(map(str, samples)))
    _say(samples, seed, json, trace)


def _say(samples: list[Sample], seed: int | None, json: Path | None, trace: Path | None) -> None:
    notes = [f"written: {file}" for file in (json, trace) if file is not None]
    if seed is None:
        notes.append(f"the seed was {samples[0].seed}: --seed {samples[0].seed} writes this again")
    if not all(sample.exact for sample in samples):
        notes.append("the tokenizer normalises: given text stands in the result in its spelling")
    for note in notes:
        print(f"didlm: {note}", file=sys.stderr)
