"""The paper's own figures that ours stand beside; its samples are judged by GPT-2 Large."""

from dataclasses import dataclass
from typing import Any

# Bounds on zero-shot perplexity, small models: RADD, DID with DICE, DID with DISE.
ZERO_SHOT = {
    "wikitext2.test": (38.27, 36.91, 38.55),
    "lambada.test": (51.82, 48.00, 50.17),
    "pubmed.test": (56.99, 52.89, 53.76),
    "ag_news.test": (73.18, 71.48, 73.25),
    "ptb.test": (108.79, 111.60, 118.63),
}


@dataclass(frozen=True)
class Sampled:
    """Samples of one method in so many steps; what the paper does not say is None."""

    perplexity: float
    nucleus: float  # perplexity with top-p 0.9
    seconds: float
    length: float | None = None
    outliers_left_out: bool = False  # only samples with a perplexity below 300 count


# By setting and method, then by steps.
SAMPLES: dict[tuple[str, str], dict[int, Sampled]] = {
    ("novels", "radd"): {
        16: Sampled(284.78, 95.55, 0.220),
        64: Sampled(111.56, 40.38, 0.499),
        256: Sampled(87.56, 31.79, 1.644),
        1024: Sampled(84.05, 30.51, 4.512),
    },
    ("novels", "did-fixed"): {
        16: Sampled(158.93, 54.40, 0.169),
        64: Sampled(97.32, 31.73, 0.353),
        256: Sampled(86.98, 28.23, 1.047),
        1024: Sampled(85.35, 27.05, 3.006),
    },
    ("stories", "ilm"): {
        64: Sampled(161.80, 174.29, 0.016, 63.34, True),
        256: Sampled(42.29, 14.50, 0.087, 206.44, True),
    },
    ("stories", "radd"): {
        64: Sampled(81.92, 50.63, 0.246, 110.66, True),
        256: Sampled(34.47, 22.21, 0.827, 349.54, True),
    },
    ("stories", "did"): {
        64: Sampled(22.78, 12.33, 0.090, 182.31),
        256: Sampled(21.90, 12.46, 0.218, 202.97),
    },
}
MEAN_LENGTH = 213.43  # of its stories

# Seconds of 50 training steps, small: RADD, DID.
TRAINING = {"novels": (26.46, 14.03), "stories": (19.93, 7.71)}


def beside(setting: str, method: str, options: dict[str, Any], steps: int) -> Sampled | None:
    """What the paper has of such samples: of DID with DISE it has none."""
    if options.get("objective") == "dise":
        return None
    return SAMPLES.get((setting, method), {}).get(steps)
