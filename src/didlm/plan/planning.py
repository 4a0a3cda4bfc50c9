"""The plan of a case: what it holds, what it does, how long that takes."""

from dataclasses import dataclass

from didlm.plan.calibration import Calibration
from didlm.plan.case import Case, Load, expected_load
from didlm.plan.counting import Weights, kernels_of, step_flops, weights_of, work_of
from didlm.plan.memory import Memory, memory_of

DAY = 24 * 3600
GPUS_OF_NODE = 8
# GB/s at which each GPU sends and receives sums, within a node and between nodes. Assumed: didlm
# has never been measured on several GPUs.
WITHIN_NODE, BETWEEN_NODES = 300.0, 40.0


@dataclass(frozen=True)
class Plan:
    """What training takes."""

    case: Case
    load: Load  # of one batch on one GPU
    weights: Weights
    memory: Memory
    flops: float  # of a step on all GPUs
    parts: dict[str, float]  # seconds of a step on each GPU
    sending: float  # seconds in which gradients are averaged; assumed
    host: float | None  # seconds in which the host starts the kernels; None if never measured

    @property
    def step(self) -> float:
        """Seconds of a step.

        With a captured graph the host has nothing to do. Without, GPU and host work at the same
        time, and the slower of the two counts. Sending is added in full, although part of it hides
        behind the backward pass.
        """
        on_gpu = sum(self.parts.values()) + self.sending
        return on_gpu if self.case.captured else max(on_gpu, self.host or 0.0)

    @property
    def waits_for_host(self) -> bool:
        """Whether the host is the slower one."""
        return self.step > sum(self.parts.values()) + self.sending

    @property
    def tokens_per_day(self) -> float:
        """Of text."""
        return self.case.tokens / self.step * DAY


def plan_of(case: Case, gpu: Calibration, link: float | None = None) -> Plan:
    """The plan of a case.

    Args:
        case: what is trained.
        gpu: on which.
        link: GB/s at which a GPU exchanges gradients with the others; else as assumed.

    Raises:
        ValueError: if that is not positive.
    """
    if link is not None and not link > 0:
        raise ValueError(f"--link must be positive: got {link:g}")
    work, weights = work_of(case), weights_of(case.config)
    host = None if gpu.host is None else kernels_of(work) / (1e3 * gpu.host)
    return Plan(
        case=case,
        load=expected_load(case),
        weights=weights,
        memory=memory_of(case),
        flops=step_flops(case),
        parts={part: gpu.rates.seconds(amounts) for part, amounts in work.items()},
        sending=_sending(case.gpus, weights.all, link or assumed_link(case.gpus)),
        host=None if case.captured else host,
    )


def assumed_link(gpus: int) -> float:
    """GB/s between GPUs, if nothing else is said."""
    return WITHIN_NODE if gpus <= GPUS_OF_NODE else BETWEEN_NODES


def _sending(gpus: int, weights: int, link: float) -> float:
    """A ring: every gradient, in float32, is sent almost twice by every GPU."""
    return 2 * (gpus - 1) / gpus * 4 * weights / (1e9 * link)
