"""The exact core for the eyes: what `didlm explain` and `didlm align` print."""

from itertools import combinations

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from didlm.alignment import (
    InsertionTargets,
    count_occurrences,
    insertion_targets,
    insertion_targets_reference,
    leftmost_occurrence,
)

SENTENCE = (
    "the fox saw the moon and the moon saw the fox , and the fox said that the moon was the moon ."
)


def encode(words: list[str], *more: list[str]) -> tuple[list[str], list[list[int]]]:
    """Number the distinct words of several lists; return the vocabulary and the numbers."""
    vocabulary = sorted({word for part in (words, *more) for word in part})
    number = {word: i for i, word in enumerate(vocabulary)}
    return vocabulary, [[number[word] for word in part] for part in (words, *more)]


def show_core(console: Console, seed: int) -> None:
    """The paper's example, a sentence losing its words, and the exact targets of one state."""
    _show_papers_example(console)
    words = SENTENCE.split()
    keep = _show_deletion(console, words, np.random.default_rng(seed))
    _, (x0,) = encode(words)
    left = [word for word, kept in zip(words, keep, strict=True) if kept]
    heading(console, "Exact targets: what is missing from the state at t = 0.5, and where")
    show_targets(console, words, left)
    fast, slow = insertion_targets(x0, keep), insertion_targets_reference(x0, keep)
    difference = float(np.abs(fast.ratio - slow.ratio).max(initial=0.0))
    console.print(
        f"The windowed algorithm and the paper's dynamic programme differ by {difference:.0e}.\n"
    )
    console.print("Try your own:  didlm align 'b a b g b a g' 'b a g'\n")


def show_targets(console: Console, words: list[str], left: list[str]) -> None:
    """A table of the targets of one state.

    Raises:
        ValueError: if the words that are left are not contained in the text.
    """
    vocabulary, (x0, x_t) = encode(words, left)
    try:
        keep = leftmost_occurrence(x_t, x0)
    except ValueError:
        raise ValueError(f"'{' '.join(left)}' is not contained in '{' '.join(words)}'") from None
    targets = insertion_targets(x0, keep)
    console.print(_targets_table(targets, vocabulary, left))
    console.print(
        f"N = {count_occurrences(x_t, x0):,} ways to lay what is left into the text; the targets "
        f"sum to {targets.ratio.sum():.12g}, the number of words missing.",
        soft_wrap=True,
    )


def _targets_table(targets: InsertionTargets, vocabulary: list[str], left: list[str]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("gap", justify="right")
    table.add_column("between")
    table.add_column("missing there, and how many: r\\[gap, word]")
    around = ["<BOS>", *left, "<end>"]
    for gap in range(len(left) + 1):
        here = Text()
        for token, ratio in zip(
            targets.token[targets.gap == gap], targets.ratio[targets.gap == gap], strict=True
        ):
            here.append(f"{vocabulary[token]} ")
            here.append(f"{ratio:.4g}   ", style="cyan")
        between = Text(f"{around[gap]} _ {around[gap + 1]}", "dim")
        table.add_row(str(gap), between, here or Text("-", "dim"))
    return table


def _show_papers_example(console: Console) -> None:
    heading(
        console, "The paper's example: in how many ways is 'b a g' contained in 'b a b g b a g'?"
    )
    words, left = list("babgbag"), list("bag")
    for places in combinations(range(len(words)), len(left)):
        if [words[j] for j in places] == left:
            line = Text("   ")
            for j, word in enumerate(words):
                line.append(word + " ", style="bold green" if j in places else "dim")
            # The chosen places are also marked for terminals without colours.
            line.append("  at " + ", ".join(map(str, places)), style="dim")
            console.print(line)
    _, (x0, x_t) = encode(words, left)
    console.print(f"   N = {count_occurrences(x_t, x0)}\n", style="bold")
    show_targets(console, words, left)
    console.print()


def _show_deletion(console: Console, words: list[str], rng: np.random.Generator) -> np.ndarray:
    """Print the sentence at falling survival; return which words are left at t = 0.5."""
    heading(console, "Deletion: each word leaves at a time of its own; survival at time t is 1 - t")
    leaves_at = rng.random(len(words))
    for t in np.linspace(0, 1, 9):
        line = Text(f"t = {t:5.3f}   <BOS> ")
        line.append(" ".join(word for word, at in zip(words, leaves_at, strict=True) if at >= t))
        console.print(line, soft_wrap=True)
    console.print()
    return leaves_at >= 0.5


def heading(console: Console, text: str) -> None:
    """Print a heading."""
    console.print(text, style="bold underline")
