"""A text that was watched, drawn as an animation to keep."""

import importlib.util

import numpy as np

from didlm.generate.results import Frame, Sample
from didlm.pretrained import Model
from didlm.serve.refusals import Refused
from didlm.serve.wire import AnimationRequest


def animate(asked: AnimationRequest, model: Model) -> bytes:
    """A GIF.

    Raises:
        Refused: if Pillow is missing.
        ValueError: if tokens, steps and times do not go together.
    """
    if importlib.util.find_spec("PIL") is None:
        raise Refused(
            501, "animations need Pillow on the service's side: pip install 'didlm[plots]'"
        )
    from didlm.display.gif import MOST_FRAMES, animation

    tokens, born = np.array(asked.tokens), np.array(asked.born)
    if len(tokens) != len(born):
        raise ValueError(
            f"there are {len(tokens)} tokens, and {len(born)} steps at which they came"
        )
    if len(tokens) > model.longest:
        raise ValueError(f"the model writes at most {model.longest} tokens: got {len(tokens)}")
    last = len(asked.times) - 1
    # As many as are drawn; each takes memory of its own.
    steps = np.linspace(0, last, min(last + 1, MOST_FRAMES)).round().astype(int).tolist()
    frames = [
        Frame(step, asked.times[step], tokens[born <= step], born[born <= step]) for step in steps
    ]
    sample = Sample("", asked.tokens, asked.born, 0, last, 0.0, 0, 0, frames=frames)
    return animation([sample], model.tokenizer, "")
