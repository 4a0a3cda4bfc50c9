"""Weights off a disk, as names and tensors: nothing in a file is ever run."""

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# What people's folders hold: those of the hub, and RADD's and SEDD's folder of a run.
USUAL = ("model.safetensors", "pytorch_model.bin", "checkpoints-meta/checkpoint.pth")
# What wrappers put before names: data parallelism, Lightning, torch.compile.
PREFIXES = ("module.", "model.", "_orig_mod.")


@dataclass(frozen=True, eq=False)
class Source:
    """The weights of a file, and what lies beside them."""

    file: Path
    weights: dict[str, Tensor]  # by the names that their own network has for them
    settings: Mapping[str, Any]  # of config.json beside the file; empty if there is none
    averages: Any = None  # of the weights, as the file has them

    def averaged(self) -> "Source":
        """With the moving averages that the file holds in the place of the weights.

        Raises:
            ValueError: if it holds none, or they do not fit.
        """
        averages = self.averages
        if isinstance(averages, Mapping) and "shadow_params" in averages:
            return replace(self, weights=self._by_order(averages["shadow_params"]))
        named = _tensors(averages) if isinstance(averages, Mapping) else {}
        if not named:
            raise ValueError(f"{self.file} holds no moving average: leave out --ema")
        buffers = {name: w for name, w in self.weights.items() if _is_buffer(name)}
        return replace(self, weights=buffers | named)

    def _by_order(self, averages: Sequence[Tensor]) -> dict[str, Tensor]:
        """Averages are kept without names, in the order of the parameters; buffers have none."""
        names = [name for name in self.weights if not _is_buffer(name)]
        shapes = [tuple(self.weights[name].shape) for name in names]
        if shapes != [tuple(average.shape) for average in averages]:
            raise ValueError(
                f"the {len(averages)} moving averages in {self.file} do not fit its "
                f"{len(names)} weights one by one: leave out --ema"
            )
        return self.weights | dict(zip(names, averages, strict=True))

    def setting(self, *names: str) -> Any:
        """The first setting of one of these names, at any depth; None if there is none."""
        return _find(self.settings, names)


def read_source(path: Path) -> Source:
    """Read a file of weights, or the one that a folder holds.

    Raises:
        ValueError: if there is none, it is damaged, or it holds more than weights.
    """
    file = _file_in(path) if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"there is no file {file}")
    if file.suffix not in SUFFIXES:
        raise ValueError(f"{file} is no file of weights: their names end in {', '.join(SUFFIXES)}")
    content = _read_safetensors(file) if file.suffix == ".safetensors" else _read_pickle(file)
    inner = content
    for name in ("state_dict", "model"):
        if isinstance(content.get(name), Mapping):
            inner = content[name]
            break
    weights = _tensors(inner)
    if not weights:
        raise ValueError(f"{file} holds no weights by name")
    return Source(file, weights, _read_settings(file.parent / "config.json"), content.get("ema"))


def _file_in(folder: Path) -> Path:
    for name in USUAL:
        if (folder / name).is_file():
            return folder / name
    found = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    if not found:
        raise ValueError(f"there are no weights in {folder}: it has no file {', '.join(SUFFIXES)}")
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:3])
        raise ValueError(
            f"{folder} holds {len(found)} files of weights, as {names}: give the path of one"
        )
    return found[0]


def _read_safetensors(file: Path) -> Mapping[str, Any]:
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged: {error}") from None


def _read_pickle(file: Path) -> Mapping[str, Any]:
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "GLOBAL" not in str(error):  # how pickles name what they want to import
            raise ValueError(f"{file} is damaged, or no checkpoint of torch") from None
        raise ValueError(
            f"{file} holds more than weights, and reading that could run anything: save its "
            "state_dict alone, with torch.save, where it comes from"
        ) from None
    except Exception:  # bytes that are no checkpoint fail in every possible way
        raise ValueError(f"{file} is damaged, or no checkpoint of torch") from None
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} holds a {type(content).__name__}, not weights by name")
    return content


def _read_settings(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(f"{file} is damaged: it is no JSON") from None
    return settings if isinstance(settings, Mapping) else {}


def _tensors(content: Mapping[str, Any]) -> dict[str, Tensor]:
    return {_bare(name): value for name, value in content.items() if isinstance(value, Tensor)}


def _bare(name: str) -> str:
    """The name without what wrappers have put before it."""
    while name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    return name


def _is_buffer(name: str) -> bool:
    """Whether it is no parameter: the speeds of rotation are all that these code bases have."""
    return name.endswith("inv_freq")


def _find(settings: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if settings.get(name) is not None and not isinstance(settings[name], Mapping):
            return settings[name]
    for value in settings.values():
        if isinstance(value, Mapping) and (found := _find(value, names)) is not None:
            return found
    return None
