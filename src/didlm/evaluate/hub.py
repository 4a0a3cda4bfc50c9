"""Judges of the library transformers: causal models from a folder, or from the Hugging Face hub."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from didlm._inputs import FloatArray, IntArray
from didlm.pretrained import check_device

LOGITS_AT_A_TIME = 2**26
NOTHING = -100  # the target where there is none
SECONDS_TO_ANSWER = 10  # for the hub


class HubJudge:
    """A causal model with a tokenizer of its own."""

    def __init__(self, name: str, network: Any, tokenizer: Any) -> None:
        """Take them as they are loaded.

        Args:
            name: what to call it.
            network: a causal model of transformers.
            tokenizer: the one that belongs to it.
        """
        self.name, self.network, self.tokenizer = name, network, tokenizer
        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.start: int | None = eos if bos is None else bos  # what the first token follows
        self.longest = _context(network.config, tokenizer)

    @torch.no_grad()
    def nats(self, texts: list[str]) -> tuple[FloatArray, IntArray]:
        """-log p of each text, cut to the judge's context, and its tokens in the judge's own.

        The first token follows the judge's BOS, or its EOS if it has no BOS. A judge with neither
        cannot say how likely a first token is, which then does not count.
        """
        texts_ids = [self._ids(text) for text in texts]
        nats, tokens = np.zeros(len(texts)), np.zeros(len(texts), dtype=np.int64)
        for numbers in self._batches(texts_ids):
            ids = [texts_ids[number] for number in numbers]
            inputs, targets = self._padded(ids)
            real = targets != NOTHING
            mask = torch.arange(inputs.shape[1], device=inputs.device) < real.sum(1, keepdim=True)
            logits = self.network(input_ids=inputs, attention_mask=mask.long()).logits.float()
            costs = cross_entropy(
                logits.transpose(1, 2), targets, ignore_index=NOTHING, reduction="none"
            )
            nats[numbers] = costs.double().sum(1).cpu().numpy()
            tokens[numbers] = real.sum(1).cpu().numpy()
        return nats, tokens

    def _ids(self, text: str) -> list[int]:
        """What the network reads of a text, and the token after it: one more than it reads."""
        start = [] if self.start is None else [self.start]
        with _quiet():  # texts longer than the context are cut here, not by the library
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return (start + ids)[: None if self.longest is None else self.longest + 1]

    def _batches(self, texts: list[list[int]]) -> Iterator[list[int]]:
        """Numbers of texts of about the same length, so that there is little padding."""
        rows = max(1, LOGITS_AT_A_TIME // self.network.get_input_embeddings().weight.shape[0])
        batch: list[int] = []
        for number in sorted(range(len(texts)), key=lambda number: -len(texts[number])):
            if len(texts[number]) < 2:  # nothing to predict, here and in what follows
                break
            if batch and (len(batch) + 1) * len(texts[batch[0]]) > rows:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def _padded(self, texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """What is read and what follows [B, L]; a causal network does not see the padding."""
        length = max(map(len, texts)) - 1
        inputs = torch.zeros(len(texts), length, dtype=torch.long)
        targets = torch.full_like(inputs, NOTHING)
        for row, ids in enumerate(texts):
            inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
            targets[row, : len(ids) - 1] = torch.tensor(ids[1:])
        return inputs.to(self.network.device), targets.to(self.network.device)


def hub_judge(name: str, device: torch.device | str = "cpu") -> HubJudge:
    """Load a causal model and its tokenizer.

    Args:
        name: a folder, or a name on the hub.
        device: where it is to run.

    Raises:
        ValueError: if transformers is not installed, or there is no such model, or it is damaged.
    """
    where = check_device(device)
    try:
        import transformers
    except ImportError:
        raise ValueError(
            f"there is no judge '{name}' among the models of didlm, and those of Hugging Face need "
            "the package transformers: pip install 'didlm[hub]'"
        ) from None
    with _quiet():
        network, tokenizer = _found(transformers, name)
        network = network.float().to(where).eval()
        _check(name, network, tokenizer)
    return HubJudge(name, network, tokenizer)


def _found(transformers: Any, name: str) -> tuple[Any, Any]:
    """The network and its tokenizer from a folder, from earlier downloads, or from the hub."""
    if Path(name).is_dir():
        return _loaded(transformers, name, local=True)
    _check_name(name)
    try:
        return _loaded(transformers, name, local=True)
    except ValueError:  # not all of it was downloaded earlier
        _ask_hub(name)
        return _loaded(transformers, name, local=False)


def _loaded(transformers: Any, name: str, local: bool) -> tuple[Any, Any]:
    options = {"local_files_only": local, "trust_remote_code": False}
    what = "tokenizer"
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
        what = "network"
        network, report = transformers.AutoModelForCausalLM.from_pretrained(
            name,
            output_loading_info=True,
            use_safetensors=True,  # other weights are pickles
            **options,
        )
    except Exception as problem:  # the libraries below raise whatever they like
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        reason = f"{lines[0] if lines else 'no reason given'} ({type(problem).__name__})"
        raise _no_judge(name, f"its {what} cannot be loaded: {reason}") from None
    if report["missing_keys"]:  # which the library would fill with noise
        raise _no_judge(name, f"its weights lack {sorted(report['missing_keys'])[0]}")
    return network, tokenizer


@torch.no_grad()
def _check(name: str, network: Any, tokenizer: Any) -> None:
    """Refuse what would give figures without a meaning."""
    known = network.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= known:
        raise _no_judge(
            name, f"its tokenizer has an id {largest}, but its network knows {known} tokens"
        )
    two = torch.tensor([[0, 0], [0, known - 1]], device=network.device)
    first, second = network(input_ids=two, attention_mask=torch.ones_like(two)).logits[:, 0]
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-3):
        raise _no_judge(name, "what it says of a token depends on the tokens after it")


def _context(config: Any, tokenizer: Any) -> int | None:
    """How many tokens the network can read, if there is a limit."""
    places = getattr(config.get_text_config(), "max_position_embeddings", None)
    if places is None and tokenizer.model_max_length < 10**9:  # more stands for no limit
        places = tokenizer.model_max_length
    return places


def _check_name(name: str) -> None:
    """Refuse what the hub would not take for a name."""
    import huggingface_hub

    try:
        huggingface_hub.utils.validate_repo_id(name)
    except huggingface_hub.errors.HFValidationError:
        raise _no_judge(name, "there is no such folder") from None


def _ask_hub(name: str) -> None:
    """Refuse a name that the hub does not have: asked once, where loading would ask many times."""
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise _no_judge(name, "there is no such folder, and the Hugging Face hub is switched off")
    try:
        huggingface_hub.HfApi().model_info(name, timeout=SECONDS_TO_ANSWER)
    except huggingface_hub.errors.HfHubHTTPError:
        raise _no_judge(
            name, "there is no such folder, and the Hugging Face hub refuses it"
        ) from None
    except Exception:  # of whichever library speaks to the network
        raise _no_judge(
            name, "there is no such folder, and the Hugging Face hub cannot be reached"
        ) from None


def _no_judge(name: str, reason: str) -> ValueError:
    return ValueError(f"there is no judge '{name}': {reason}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from talking; what is wrong is said by errors."""
    from transformers.utils import logging as chatter

    hub, level = logging.getLogger("huggingface_hub"), chatter.get_verbosity()
    hub_level, bars = hub.level, chatter.is_progress_bar_enabled()
    chatter.set_verbosity_error()
    chatter.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        chatter.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            chatter.enable_progress_bar()
