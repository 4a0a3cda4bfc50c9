"""From what a user calls a model to its folder: a path, a shipped name, or an id on the hub."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent / "models"  # those that come with the package
FILES = ["config.json", "model.safetensors", "tokenizer.json", "README.md"]
SECONDS_TO_ANSWER = 10  # for the hub
NO_ANSWER = "cannot be reached, or refuses you"
INSTALL = "pip install 'didlm[hub]'"
_HUB_ID = re.compile(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[^@\s]+))?", re.ASCII)


def locate(name: Path | str) -> Path:
    """The folder of a model.

    What is here is never asked for elsewhere: the network is used for hub ids alone.

    Args:
        name: a folder with a model; the name of one that comes with the package; or an id on the
            Hugging Face hub, `owner/name` or `owner/name@revision`, whose files are downloaded into
            the hub's own cache, and found there without a network too. A `Path` is always a folder.

    Raises:
        ValueError: in one sentence, if there is no such model, or it cannot be had.
    """
    folder = Path(name)
    if name == "":  # which would be the folder we are in
        raise _unknown(name)
    known = shipped()
    # A folder of texts that happens to have the name of a shipped model does not hide it.
    if folder.is_dir() and (name not in known or (folder / "config.json").is_file()):
        return folder
    if folder.is_file():
        raise ValueError(f"{name} is a file: a model is a folder")
    if isinstance(name, Path) or _looks_like_a_path(name):
        raise ValueError(f"there is no folder {name}")
    if name in known:
        return known[name]
    found = _HUB_ID.fullmatch(name)
    if found is None:
        raise _unknown(name)
    return _from_hub(name, found["id"], found["revision"])


def shipped() -> dict[str, Path]:
    """The models that come with the package, by name."""
    if not MODELS.is_dir():
        return {}
    return {file.parent.name: file.parent for file in sorted(MODELS.glob("*/config.json"))}


def is_ours(config: Any) -> bool:
    """Whether the content of a config.json is that of a model of didlm."""
    return isinstance(config, dict) and "format" in config and "method" in config


def _looks_like_a_path(name: str) -> bool:
    place, _, _ = name.partition("@")  # a revision may have slashes
    return name.startswith((".", "/", "~")) or name.endswith("/") or place.count("/") > 1


def _unknown(name: str) -> ValueError:
    known = list(shipped())
    ways = ["a folder", *([f"a shipped name ({', '.join(known)})"] if known else [])]
    ways.append("a hub id, which is owner/name")
    return ValueError(f"there is no model '{name}': it is neither {' nor '.join(ways)}{hint(name)}")


def hint(name: str) -> str:
    """The shipped name that may have been meant, as the end of a sentence."""
    near = get_close_matches(name, list(shipped()), 1)
    return f": did you mean '{near[0]}'?" if near else ""


def _from_hub(name: str, repo: str, revision: str | None) -> Path:
    nowhere = f"there is no folder {name}"
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants, errors
    except ImportError:
        raise ValueError(f"{nowhere}, and models of the hub take a library: {INSTALL}") from None
    try:
        with _quiet():
            local = constants.HF_HUB_OFFLINE or not _answers(hub, repo, revision)
            # Its description first: the weights of a stranger may be large.
            file = hub.hf_hub_download(
                repo, "config.json", revision=revision, local_files_only=local
            )
            folder = Path(file).parent  # called by the commit
            _check_ours(repo, folder)
            if all((folder / file).is_file() for file in FILES):
                return folder
            return Path(
                hub.snapshot_download(
                    repo, revision=folder.name, allow_patterns=FILES, local_files_only=local
                )
            )
    except errors.HFValidationError:
        raise _unknown(name) from None
    except errors.GatedRepoError:
        raise ValueError(
            f"the hub gives {repo} only to those who accept its terms: do so at "
            f"https://huggingface.co/{repo}, then log in with `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ValueError(
            f"{nowhere}, and the hub has no model {repo} for you: "
            "if it is private, log in with `hf auth login`"
        ) from None
    except errors.RevisionNotFoundError:
        raise ValueError(f"the model {repo} on the hub has no revision '{revision}'") from None
    except errors.LocalEntryNotFoundError:  # the hub did not answer, and the cache lacks something
        off = "is switched off (HF_HUB_OFFLINE)" if constants.HF_HUB_OFFLINE else NO_ANSWER
        raise ValueError(f"{nowhere}, no whole download of it, and the hub {off}") from None
    except errors.EntryNotFoundError:
        raise ValueError(f"{repo} on the hub is no didlm model: it has no config.json") from None
    except (errors.HfHubHTTPError, ConnectionError) as error:
        raise ValueError(f"{repo} cannot be downloaded: {str(error).splitlines()[0]}") from None


def _answers(hub: Any, repo: str, revision: str | None) -> bool:
    """Whether the hub can be reached: asked once, where a download would try for half a minute."""
    from huggingface_hub import errors

    clear = errors.HFValidationError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError
    try:
        hub.HfApi().model_info(repo, revision=revision, timeout=SECONDS_TO_ANSWER)
    except clear:
        raise
    except Exception:  # of whichever library speaks to the network
        return False
    return True


def _check_ours(repo: str, folder: Path) -> None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        config = None
    if not is_ours(config):
        raise ValueError(
            f"{repo} on the hub is no didlm model: its config.json is of something else"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from warning; what is wrong is said by errors."""
    from huggingface_hub.utils import logging as chatter

    level = chatter.get_verbosity()
    chatter.set_verbosity_error()
    try:
        yield
    finally:
        chatter.set_verbosity(level)
