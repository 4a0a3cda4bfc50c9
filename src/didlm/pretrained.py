"""A model folder, in and out: config.json, model.safetensors, tokenizer.json, README.md."""

import errno
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import didlm
from didlm._inputs import IntArray, whole_number
from didlm.card import bare_card, placed
from didlm.data.tokenizer import Tokenizer
from didlm.evaluate.score import Score, score_text
from didlm.files import write_text
from didlm.generate.controls import Controls, check_defaults, suited
from didlm.generate.gaps import Gap, gaps_of
from didlm.generate.results import Frame, Sample
from didlm.generate.scorer import NetworkScorer, scorer_of
from didlm.generate.template import Blank, Parts, check_known, match, parse
from didlm.generate.writing import BATCH, Callback, Task, finish, write_all
from didlm.locate import locate
from didlm.methods.method import Method
from didlm.methods.registry import find_method
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.packed import Packed, pack
from didlm.push import push

Tokens = TypeVar("Tokens", IntArray, torch.Tensor)

FORMAT = 1
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(eq=False)
class Model:
    """A trained network with its tokenizer and its method."""

    network: Network
    tokenizer: Tokenizer
    method: Method
    longest: int = 1024  # no text that it was trained on had more tokens
    lossless: bool = True  # whether the tokenizer gave back exactly the texts it was trained on
    card: str = ""  # what its README.md says
    defaults: dict[str, float | bool] = field(default_factory=dict)  # of `generate`, that suit it

    def generate(
        self,
        prompt: str | None = None,
        suffix: str | None = None,
        num_samples: int = 1,
        steps: int = 64,
        top_p: float | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        callback: Callback | None = None,
        trace: bool = False,
        **controls: Any,
    ) -> list[Sample]:
        """Write texts, from nothing or around what is given.

        Args:
            prompt: how every text begins: nothing is inserted before it or into it.
            suffix: how every text ends.
            num_samples: how many texts.
            steps: of the time grid; more are better and slower.
            top_p: draw tokens from the smallest set that has this probability; without, as the
                model suggests (`defaults`), else from all: 1.
            temperature: of the token distribution; the same holds for it and for other controls.
            seed: of all draws: the same one gives the same texts. None draws one, which the
                samples name.
            batch_size: how many texts are written together; it does not change them.
            callback: called with the frames of a batch after every step.
            trace: whether samples keep their frames, for `didlm.display.trace`.
            **controls: see `didlm.generate.controls.Controls`.
        """
        parts: Parts = [prompt or "", Blank(), suffix or ""]
        controls |= {"steps": steps, "top_p": top_p, "temperature": temperature}
        return self._write([parts], num_samples, seed, batch_size, callback, trace, controls)

    def infill(
        self,
        template: str | Parts,
        num_samples: int = 1,
        seed: int | None = None,
        batch_size: int | None = None,
        callback: Callback | None = None,
        trace: bool = False,
        **controls: Any,
    ) -> list[Sample]:
        """Fill the blanks of a template; what stands around them is kept character for character.

        Args:
            template: a text with blanks: `[...]` of any length, `[...5]` of at most 5 tokens,
                `[...2-5]` of 2 to 5, `[_]` one token; or a sequence of texts and `Blank`s.
            num_samples: how many fillings.
            seed: as for `generate`, and so are the following.
            batch_size: how many texts are written together.
            callback: called with the frames of a batch after every step.
            trace: whether samples keep their frames.
            **controls: see `didlm.generate.controls.Controls`.
        """
        parts = [_parts(template)]
        return self._write(parts, num_samples, seed, batch_size, callback, trace, controls)

    def infill_each(
        self,
        templates: Sequence[str | Parts],
        seed: int | None = None,
        batch_size: int | None = None,
        callback: Callback | None = None,
        trace: bool = False,
        **controls: Any,
    ) -> list[Sample]:
        """Fill each of many templates once, in batches: `infill` has the arguments."""
        parts = [_parts(template) for template in templates]
        return self._write(parts, len(parts), seed, batch_size, callback, trace, controls)

    def stream(
        self,
        template: str | Parts = "[...]",
        num_samples: int = 1,
        seed: int | None = None,
        **controls: Any,
    ) -> Iterator[list[Frame]]:
        """Fill a template and yield the texts as they are after every step, for live display."""
        task = self.task([_parts(template)], num_samples, seed, controls)
        return iter(write_all(task, num_samples, watched=True, trace=False))

    def gaps(self, text: str, t: float = 0.5, top: int = 5) -> list[Gap]:
        """Where tokens are missing from a text of which a share t is thought to be deleted.

        Args:
            text: the text, of which everything may be incomplete.
            t: the time, as the probability of deletion.
            top: how many of the likeliest tokens to name at each gap.
        """
        check_known(text, self.tokenizer)
        return self.gaps_between(pack([self.tokenizer.encode(text)], self.tokenizer.bos), t, top)

    def gaps_between(self, x_t: Packed, t: float = 0.5, top: int = 5) -> list[Gap]:
        """The same of a text in tokens, of which some may be given and some gaps closed."""
        self._fitting(x_t.tokens[1:])
        if not self.network.config.rates:
            raise ValueError(
                f"the method '{self.method.name}' does not say where tokens are missing"
            )
        self.network.eval()
        scorer = NetworkScorer(self.network)
        return gaps_of(scorer, self.tokenizer, x_t.to(self.device), t, self.length, top)

    def score(
        self, text: str, given: str | Parts | None = None, draws: int = 64, seed: int = 0
    ) -> Score:
        """A lower bound on the log-likelihood of a text, or of what is not given of it.

        Args:
            text: the whole text.
            given: a template that the text matches, such as `Once upon a time [...]`: only what
                stands in its blanks is scored.
            draws: states of the text to visit; more are more precise.
            seed: of the draws.
        """
        check_known(text, self.tokenizer)
        if given is None:
            tokens, what = self.tokenizer.encode(text), None
        else:
            tokens, what = match(_parts(given), text, self.tokenizer)
        tokens, what = self.method.whole(self._fitting(tokens), what)
        return score_text(self.network, self.method, tokens, what, draws, seed % 2**64)

    @property
    def length(self) -> int | None:
        """How many tokens every text has, if all have as many."""
        return self.method.length

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.network.token_head.device

    def _fitting(self, tokens: Tokens) -> Tokens:
        if len(tokens) > self.longest:
            raise ValueError(
                f"the text has {len(tokens)} tokens: "
                f"the model was trained on texts of at most {self.longest}"
            )
        return tokens

    def _write(
        self,
        templates: list[Parts],
        num_samples: int,
        seed: int | None,
        batch_size: int | None,
        callback: Callback | None,
        trace: bool,
        controls: dict[str, Any],
    ) -> list[Sample]:
        batch_size = BATCH if batch_size is None else whole_number(batch_size, "the batch size")
        if batch_size < 1:
            raise ValueError(f"a batch needs at least one text: got a batch size of {batch_size}")
        task = self.task(templates, num_samples, seed, controls)
        steps = write_all(task, batch_size, callback is not None, trace)
        return finish(steps, callback)

    def task(
        self, templates: list[Parts], num_samples: int, seed: int | None, options: dict[str, Any]
    ) -> Task:
        """What there is to do to fill templates: each once, or a single one `num_samples` times.

        Raises:
            ValueError: if the options are not to be had.
        """
        num_samples = whole_number(num_samples, "the number of samples")
        if num_samples < 1:
            raise ValueError(f"cannot write {num_samples} texts")
        controls = Controls(**suited(options, self.defaults))
        self.network.eval()
        return Task(
            scorer=scorer_of(self.network, max(self.longest, self.length or 0)),
            method=self.method,
            tokenizer=self.tokenizer,
            plan=controls.plan(self.tokenizer, self.method, self.longest, self.device),
            templates=templates,
            controls=controls,
            count=num_samples,
            seed=secrets.randbits(32) if seed is None else whole_number(seed, "the seed"),
            device=self.device,
        )

    def plain(self) -> "Model":
        """The same model without its defaults: it writes the distribution that it has learnt."""
        return replace(self, defaults={})

    def save_pretrained(self, folder: Path | str, card: str = "", dtype: str | None = None) -> None:
        """Write the folder; an older model there is replaced file by file, never half-written.

        Args:
            folder: where; it is made if need be.
            card: its README.md; without, the one that the model came with.
            dtype: of the weights in the file: fp32, bf16 or fp16; without, as they are. 16 bits
                take half the room, and are loaded in any precision.

        Raises:
            ValueError: if a weight is too large for the dtype, or the defaults cannot be.
        """
        folder, defaults = Path(folder), check_defaults(self.defaults)
        kind = None if dtype is None else _dtype(dtype)
        self.card = card or self.card or bare_card(self.method.name)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            name: p.detach().to("cpu", kind).contiguous()
            for name, p in self.network.state_dict().items()
        }
        if not all(weight.isfinite().all() for weight in weights.values()):
            raise ValueError(f"some weights are too large for {dtype}, or no numbers at all")
        _save_weights(weights, folder / "model.safetensors")
        self.tokenizer.save(folder)
        config = {
            "format": FORMAT,
            "didlm": didlm.__version__,
            "method": {"name": self.method.name, **vars(self.method)},
            "model": asdict(self.network.config),
            "longest": self.longest,
            "lossless": self.lossless,
            "defaults": defaults,
        }
        write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
        write_text(folder / "README.md", self.card)

    def push_to_hub(
        self,
        repo_id: str,
        private: bool = False,
        token: str | None = None,
        message: str = "Upload a didlm model",
    ) -> str:
        """Put the model on the Hugging Face hub, from where `didlm.load(repo_id)` reads it.

        Args:
            repo_id: `owner/name`; what is there already is replaced, its history is kept.
            private: whether others must not see it.
            token: of the hub; None for the one of `hf auth login`.
            message: of the commit.

        Returns:
            The address of the model.

        Raises:
            ValueError: in one sentence, if the hub does not take it.
        """
        with tempfile.TemporaryDirectory() as folder:
            copy = replace(self, card=placed(self.card or bare_card(self.method.name), repo_id))
            copy.save_pretrained(folder)
            return push(Path(folder), repo_id, private, token, message)

    @staticmethod
    def from_pretrained(
        name: Path | str, device: torch.device | str = "cpu", dtype: str = "fp32"
    ) -> "Model":
        """Read a folder that `save_pretrained` has written.

        Args:
            name: a folder, a shipped name, or a hub id (see `didlm.locate.locate`).
            device: where the network is to run.
            dtype: in which precision: fp32, bf16 or fp16.

        Raises:
            ValueError: if it is missing, damaged, or of a newer format.
        """
        kind = _dtype(dtype)
        folder = locate(name)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a model: it has no config.json")
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            version = config["format"]
            if not isinstance(version, int):
                raise TypeError(f"its format is {version!r}")
            if version > FORMAT:
                raise ValueError(
                    f"{folder} has format {version}, newer than {FORMAT}, which this didlm reads: "
                    "upgrade it"
                )
            network = Network(ModelConfig(**config["model"]))
            fields = dict(config["method"])
            method = find_method(fields.pop("name"))(**fields)
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{folder}/config.json is damaged: {error}") from None
        try:
            network.load_state_dict(load_file(folder / "model.safetensors"))
        except FileNotFoundError:
            raise ValueError(f"{folder} has no model.safetensors") from None
        except (SafetensorError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{folder}/model.safetensors is damaged: {reason}") from None
        longest, tokenizer = config.get("longest", Model.longest), Tokenizer.load(folder)
        if not isinstance(longest, int) or longest < 1:
            raise ValueError(f"{folder}/config.json is damaged: longest is {longest!r}")
        lossless = config.get("lossless", Model.lossless)
        if not isinstance(lossless, bool):
            raise ValueError(f"{folder}/config.json is damaged: lossless is {lossless!r}")
        try:
            defaults = check_defaults(config.get("defaults", {}))
        except ValueError as error:
            raise ValueError(f"{folder}/config.json is damaged: {error}") from None
        if tokenizer.vocabulary != network.config.vocabulary:
            raise ValueError(
                f"the tokenizer in {folder} has {tokenizer.vocabulary} tokens, but its network "
                f"knows {network.config.vocabulary}: they do not belong together"
            )
        return Model(
            network.to(check_device(device), kind).eval(),
            tokenizer,
            method,
            longest,
            lossless,
            _card(folder),
            defaults,
        )


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ValueError(f"there is no dtype '{name}': known are {', '.join(DTYPES)}")
    return DTYPES[name]


def _card(folder: Path) -> str:
    """What the README.md says; a model without one is as good as any."""
    try:
        return (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _save_weights(weights: dict[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file beside its place, then move it there.

    Raises:
        OSError: if it cannot be written, as on a full disk.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        save_file(weights, temporary, metadata={"format": "pt"})
        temporary.chmod(0o644)  # the library leaves it to the owner alone
        temporary.replace(path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))  # all that the library says of it
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _parts(template: str | Parts) -> Parts:
    return parse(template) if isinstance(template, str) else template


def check_device(name: torch.device | str) -> torch.device:
    """The device of a name.

    Raises:
        ValueError: if this machine has none of that name.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ValueError(f"there is no device '{name}' on this machine") from None
    return device


def load(name: Path | str, device: torch.device | str = "cpu", dtype: str = "fp32") -> Model:
    """The model in a folder, of a shipped name, or of a hub id: see `Model.from_pretrained`."""
    return Model.from_pretrained(name, device, dtype)
