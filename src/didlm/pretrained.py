"""A model folder, in and out: config.json, model.safetensors, tokenizer.json, README.md."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import didlm
from didlm.data.tokenizer import Tokenizer
from didlm.files import write_text
from didlm.generate.tau_leaping import tau_leaping
from didlm.methods.did import DID
from didlm.model.config import ModelConfig
from didlm.model.transformer import Network
from didlm.packed import pack
from didlm.schedule import uniform_grid

FORMAT = 1


@dataclass(eq=False)
class Model:
    """A trained network with its tokenizer and its method."""

    network: Network
    tokenizer: Tokenizer
    method: DID
    length: int | None = None  # of every text, for fixed-length models
    longest: int = 1024  # no text that it was trained on had more tokens

    def generate(
        self, count: int = 1, steps: int = 64, seed: int = 0, temperature: float = 1.0
    ) -> list[str]:
        """Write texts from nothing.

        Args:
            count: how many texts.
            steps: network calls; more are better and slower.
            seed: of all random draws.
            temperature: of the token distribution.
        """
        if count < 1:
            raise ValueError(f"cannot write {count} texts")
        if not temperature > 0:
            raise ValueError(f"the temperature must be positive: got {temperature}")
        device = self.network.token_head.device
        generator = torch.Generator(device).manual_seed(seed)
        start = pack([np.empty(0, np.int64)] * count, self.tokenizer.bos).to(device)
        self.network.eval()
        x_0 = tau_leaping(
            self.network,
            start,
            uniform_grid(steps),
            generator,
            self.length,
            temperature=temperature,
        )
        return [self.tokenizer.decode(text.cpu().numpy()) for text in x_0.unpack()]

    def save_pretrained(self, folder: Path | str, card: str = "") -> None:
        """Write the folder; an older model there is replaced file by file, never half-written."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            name: p.detach().cpu().contiguous() for name, p in self.network.state_dict().items()
        }
        save_file(weights, folder / "model.safetensors.tmp", metadata={"format": "pt"})
        (folder / "model.safetensors.tmp").chmod(0o644)  # the library leaves it to the owner alone
        (folder / "model.safetensors.tmp").replace(folder / "model.safetensors")
        self.tokenizer.save(folder)
        config = {
            "format": FORMAT,
            "didlm": didlm.__version__,
            "method": asdict(self.method),
            "model": asdict(self.network.config),
            "length": self.length,
            "longest": self.longest,
        }
        write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
        write_text(folder / "README.md", card or "# A didlm model\n")

    @staticmethod
    def from_pretrained(folder: Path | str, device: torch.device | str = "cpu") -> "Model":
        """Read a folder that `save_pretrained` has written.

        Raises:
            ValueError: if it is missing, damaged, or of a newer format.
        """
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a model: it has no config.json")
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            version = config["format"]
            if not isinstance(version, int) or version > FORMAT:
                raise ValueError(
                    f"{folder} has format {version}, newer than {FORMAT}, which this didlm reads: "
                    "upgrade it"
                )
            network = Network(ModelConfig(**config["model"]))
            method = DID(**config["method"])
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{folder}/config.json is damaged: {error}") from None
        try:
            network.load_state_dict(load_file(folder / "model.safetensors"))
        except FileNotFoundError:
            raise ValueError(f"{folder} has no model.safetensors") from None
        except (SafetensorError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{folder}/model.safetensors is damaged: {reason}") from None
        longest = config.get("longest", Model.longest)
        return Model(
            network.to(check_device(device)).eval(),
            Tokenizer.load(folder),
            method,
            config.get("length"),
            longest,
        )


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


def load(folder: Path | str, device: torch.device | str = "cpu") -> Model:
    """The model in a folder."""
    return Model.from_pretrained(folder, device)
