"""How fast is generation? Our sampler against the paper's algorithm, with one network, on the CPU.

    python benchmarks/sampling.py [--presets tiny mini] [--steps N] [--repeats R] [--gumbel]

At every step the paper's algorithm draws one outcome per gap, out of the vocabulary and 'nothing',
in float64 and for all gaps at once. `paper` inverts the distribution function for that, the fastest
way in torch; `paper-gumbel` puts noise on every probability, as the official code does. Ours,
`tau-leaping`, takes the same steps, but sees first which gaps fire and names tokens for these
alone. `adaptive` is our default, with some short steps more at the start.

All write a batch of 16 with the same random network. Its rates are replaced such that every text
ends with about 200 tokens, whatever is drawn: `mean_length` and `rows_read` show that the work is
equal. Time in the body is time in `Network.forward`; the heads and all else are outside. Memory is
how far the resident memory rises at its peak, above the weights: `mib` in a whole run,
`mib_outside` in one whose body returns noise at once, so that of its activations only the hidden
states are left, which every implementation needs.

Prints a table and appends its rows to benchmarks/results/sampling.csv. The paper's algorithm takes
4 GiB (with Gumbel noise 5) and minutes.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from didlm.generate.draft import Draft, begin
from didlm.generate.driver import Writer, write
from didlm.generate.samplers import Sampler, adaptive, tau_leaping
from didlm.generate.scorer import NetworkScorer
from didlm.generate.stages import Plan
from didlm.generate.template import NO_LIMIT, Start
from didlm.model.config import preset
from didlm.model.transformer import Network
from didlm.packed import Packed
from didlm.schedule import uniform_grid
from recording import peak_mib, record

VOCABULARY, LENGTH, BATCH, LONGEST = 50_304, 200, 16, 1024
BOS = 0
MEMORY_STEPS = 24


@dataclass(frozen=True)
class Row:
    """What an implementation took for a batch: medians over its repeats."""

    preset: str
    implementation: str
    steps: int
    batch: int
    vocabulary: int
    threads: int
    repeats: int
    mean_length: float  # of the texts, in the first repeat
    rows_read: int  # by the network in all its calls, in the first repeat
    seconds: float
    s_25: float
    s_75: float
    s_body: float  # time inside the network's body
    s_outside: float  # and all other time
    mib: float  # memory at the peak, without the weights
    mib_outside: float  # and without the body


class BenchNetwork(Network):
    """A network of texts of `LENGTH` tokens, that notes what its body reads and how long it takes.

    Without a body it is noise of the scale of hidden states.
    """

    has_body = True
    seconds_in_body = 0.0
    rows_read = 0

    def forward(self, x_t: Packed, deleted: Tensor, longest: int) -> Tensor:
        """Hidden states, with the time taken."""
        if not self.has_body:
            return torch.randn(x_t.rows, self.config.width)
        start = time.perf_counter()
        hidden = super().forward(x_t, deleted, longest)
        self.seconds_in_body += time.perf_counter() - start
        self.rows_read += x_t.rows
        return hidden

    def log_rate(self, hidden: Tensor, deleted: Tensor, x_t: Packed) -> Tensor:
        """What is missing to `LENGTH`, spread evenly; the head is computed, but not listened to."""
        rows = x_t.offsets.diff()
        log_rate = ((LENGTH + 1 - rows).clamp(min=1e-9) / rows).log()
        return 0 * super().log_rate(hidden, deleted, x_t) + log_rate[x_t.sequence]


Implementation = Callable[[BenchNetwork, Draft, int, int], float]  # steps, seed -> mean length
Draw = Callable[[Tensor], Tensor]  # chances [T, V], whose rest is 'nothing' -> outcomes [T]


def ours(
    sampler: Sampler,
    grid: Callable[[int], np.ndarray],
    network: BenchNetwork,
    draft: Draft,
    steps: int,
    seed: int,
) -> float:
    """The driver with one of its samplers."""
    plan = Plan(sampler, grid(steps).tolist(), longest=LONGEST)
    writer = Writer(NetworkScorer(network), draft, plan, seed)
    for _ in write(writer):
        pass
    return float(np.mean([text.tokens.size for text in writer.finished]))


@torch.no_grad()
def paper(draw: Draw, network: BenchNetwork, draft: Draft, steps: int, seed: int) -> float:
    """The paper's algorithm: a joint draw of whether a token comes, and which, in every gap."""
    torch.manual_seed(seed)
    x_t = draft.x_t
    for t, s in pairwise(uniform_grid(steps).tolist()):
        u = torch.full((len(x_t),), t)
        hidden = network(x_t, u, int(x_t.lengths.max()) + 1)
        rate = network.log_rate(hidden, u, x_t).double().exp()
        chance = (hidden @ network.token_head.T).double().softmax(-1)
        chance *= (rate * (t - s) / t).clamp(max=1)[:, None]
        outcome = draw(chance)
        rows = (outcome < VOCABULARY).nonzero().squeeze(-1)
        x_t, _ = x_t.splice(rows, outcome[rows])
    return float(x_t.lengths.double().mean())


def invert(chance: Tensor) -> Tensor:
    """Where the running sum of the chances passes a uniform draw; beyond all of them is nothing."""
    uniform = torch.rand(len(chance), 1, dtype=chance.dtype)
    return torch.searchsorted(chance.cumsum(-1), uniform, right=True).squeeze(-1)


def gumbel(chance: Tensor) -> Tensor:
    """The largest of all chances after noise, as in the official code; the last is of nothing."""
    chance = torch.cat([chance, (1 - chance.sum(-1, keepdim=True)).clamp(min=0)], -1)
    noise = 1e-10 - (torch.rand_like(chance) + 1e-10).log()
    return (chance / noise).argmax(-1)


IMPLEMENTATIONS: dict[str, Implementation] = {
    "tau-leaping": partial(ours, tau_leaping, uniform_grid),
    "adaptive": partial(ours, adaptive, uniform_grid),
    "paper": partial(paper, invert),
    "paper-gumbel": partial(paper, gumbel),
}


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=["tiny", "mini"])
    parser.add_argument("--only", nargs="+", default=list(IMPLEMENTATIONS), help="these alone")
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3, help="of our samplers")
    parser.add_argument("--paper-repeats", type=int, default=1, help="of the paper's algorithm")
    parser.add_argument("--gumbel", action="store_true", help="measure the official draw as well")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-record", action="store_true", help="only print")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name in arguments.presets:
        for implementation in arguments.only:
            if implementation != "paper-gumbel" or arguments.gumbel:
                is_paper = implementation.startswith("paper")
                repeats = arguments.paper_repeats if is_paper else arguments.repeats
                print(f"measuring {name}, {implementation}", flush=True)
                rows.append(measure(name, implementation, arguments.steps, repeats))
    show(rows)
    if not arguments.no_record:
        command = " ".join(["python benchmarks/sampling.py", *sys.argv[1:]])
        record("sampling", rows, command, ["torch"])


def measure(name: str, implementation: str, steps: int, repeats: int) -> Row:
    """Time and memory of one implementation with the network of one preset."""
    torch.manual_seed(0)
    config = preset(name, VOCABULARY)
    network = BenchNetwork(replace(config, mean_length=float(LENGTH))).eval()
    draft = begin([empty_start()] * BATCH, BOS)
    call = IMPLEMENTATIONS[implementation]
    call(network, draft, 8, 0)  # to warm up
    runs: list[tuple[float, float, int, float]] = []

    def run() -> None:
        network.seconds_in_body, network.rows_read = 0.0, 0
        start = time.perf_counter()
        length = call(network, draft, steps, len(runs))
        spent = time.perf_counter() - start
        runs.append((spent, network.seconds_in_body, network.rows_read, length))

    mib = max(peak_mib(run) for _ in range(repeats))
    network.has_body = False
    # What the paper's algorithm holds depends on the length of the texts, not on the steps.
    few = MEMORY_STEPS if implementation.startswith("paper") else steps
    mib_outside = peak_mib(lambda: call(network, draft, few, 0))
    total, body = np.array([times for *times, _, _ in runs]).T
    _, _, rows_read, length = runs[0]
    return Row(
        preset=name,
        implementation=implementation,
        steps=steps,
        batch=BATCH,
        vocabulary=VOCABULARY,
        threads=torch.get_num_threads(),
        repeats=repeats,
        mean_length=length,
        rows_read=rows_read,
        seconds=float(np.median(total)),
        s_25=float(np.quantile(total, 0.25)),
        s_75=float(np.quantile(total, 0.75)),
        s_body=float(np.median(body)),
        s_outside=float(np.median(total - body)),
        mib=mib,
        mib_outside=mib_outside,
    )


def empty_start() -> Start:
    """One blank and nothing else."""
    none = np.empty(0, dtype=np.int64)
    return Start(
        tokens=none,
        given=none,
        blank=np.array([0]),
        least=np.array([0]),
        most=np.array([NO_LIMIT]),
        spaced=np.array([False]),
        pieces=(None,),
        exact=True,
    )


def show(rows: list[Row]) -> None:
    """Print the table, and how far ours is ahead of the paper's."""
    first = rows[0]
    table = Table(
        title=f"{BATCH} texts in {first.steps} steps, {VOCABULARY:,} tokens, "
        f"{first.threads} threads"
    )
    names = ("preset", "sampler", "length", "rows read", "s", "25 - 75 %", "s in body", "outside")
    for name in (*names, "MiB", "outside body"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.preset,
            row.implementation,
            f"{row.mean_length:.1f}",
            f"{row.rows_read:,}",
            f"{row.seconds:.2f}",
            f"{row.s_25:.2f} - {row.s_75:.2f}",
            f"{row.s_body:.2f}",
            f"{row.s_outside:.2f}",
            f"{row.mib:,.0f}",
            f"{row.mib_outside:,.0f}",
        )
    console = Console(width=120)
    console.print(table)
    leaping = {row.preset: row for row in rows if row.implementation == "tau-leaping"}
    for row in rows:
        if row.implementation.startswith("paper"):
            base = leaping[row.preset]
            console.print(
                f"{row.preset}, {row.implementation} against tau-leaping: "
                f"{row.seconds / base.seconds:.1f} times the time, "
                f"{row.s_outside / base.s_outside:.1f} times outside the body, "
                f"{row.mib_outside / base.mib_outside:.0f} times the memory there"
            )
    console.print("goals: tiny 8 times the time, mini 50 times outside the body, memory 10 times")


if __name__ == "__main__":
    main()
