"""What `didlm convert` does: read weights, find out whose they are, write a model folder."""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from didlm.card import bare_card
from didlm.convert import did, ilm, radd
from didlm.convert.naming import Wishes
from didlm.convert.reading import Source, read_source
from didlm.data.tokenizer import Tokenizer
from didlm.files import check_folder, check_free
from didlm.pretrained import Model

KINDS: dict[str, Callable[[Source, Tokenizer, Wishes], Model]] = {
    "radd": radd.convert,
    "ilm": ilm.convert,
    "did": did.convert,
    "did-fixed": did.convert_fixed,
}
SAID = (
    "Converted from `{file}`, of the kind `{kind}`{averaged}. What is equal to the public code and "
    "what is not: docs/converting.md of didlm."
)


def convert_weights(
    source: Path,
    tokenizer: Path,
    kind: str | None = None,
    ema: bool = False,
    heads: int | None = None,
    length: int | None = None,
) -> tuple[Model, str]:
    """The model that public weights are, and their kind.

    Args:
        source: a file of weights, or a folder that holds one.
        tokenizer: the one that they were trained with: a file, or a folder that holds one.
        kind: radd, ilm, did or did-fixed; by default as the names of the weights tell.
        ema: whether to take the moving averages that a checkpoint holds.
        heads: of attention, where the weights do not tell.
        length: how many tokens a text has at most, or in all; 1024 where config.json does not tell.

    Raises:
        ValueError: if they cannot be converted.
    """
    if kind is not None and kind not in KINDS:
        near = get_close_matches(kind, KINDS, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(KINDS)}"
        raise ValueError(f"there is no kind '{kind}': {hint}")
    for name, value in (("heads", heads), ("length", length)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1: got {value}")
    weights = read_source(Path(source))
    kind = kind or _kind_of(weights)
    if ema:
        weights = weights.averaged()
    return KINDS[kind](weights, Tokenizer.load(Path(tokenizer)), Wishes(heads, length)), kind


def convert_for_user(
    source: Path,
    kind: str | None,
    tokenizer: Path,
    out: Path,
    ema: bool,
    heads: int | None,
    length: int | None,
) -> None:
    """Convert, write the folder, and say so."""
    check_folder(out)
    check_free(out)
    model, kind = convert_weights(source, tokenizer, kind, ema, heads, length)
    averaged = ", its moving averages" if ema else ""
    said = SAID.format(file=source.name, kind=kind, averaged=averaged)
    model.save_pretrained(out, bare_card(model.method.name, said))
    config = model.network.config
    size = sum(parameter.numel() for parameter in model.network.parameters())
    print(
        f"{kind}: {config.layers} layers of width {config.width}, {size / 1e6:.1f}M parameters, "
        f"{config.vocabulary} tokens -> {out}"
    )


def _kind_of(source: Source) -> str:
    """The kind that names alone tell.

    Those expected of DID are the ones of RADD and SEDD, so it is never guessed.
    """
    for kind, module in (("radd", radd), ("ilm", ilm)):
        if module.recognises(source):
            return kind
    raise ValueError(
        f"the names of the weights in {source.file}, as {next(iter(source.weights))}, do not tell "
        f"their kind: give --kind, one of {', '.join(KINDS)}"
    )
