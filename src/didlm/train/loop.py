"""The training loop: noised batches in, a model folder out."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from didlm.data.batch import Batch, Budget
from didlm.data.loader import Loader, budget_for
from didlm.evaluate.bound import Bound, byte_label, likelihood_bound
from didlm.files import write_text
from didlm.given import given_prefix
from didlm.loss import batch_loss
from didlm.model.config import preset
from didlm.model.flops import training_flops
from didlm.model.transformer import Network
from didlm.pretrained import DTYPES, Model, check_device
from didlm.train.optimiser import MovingAverage, learning_rate_factor, make_optimisers
from didlm.train.prepare import Prepared, prepare
from didlm.train.progress import Reporter
from didlm.train.record import model_card, record_run
from didlm.train.settings import Settings

# Dynamic loss scaling of fp16 overflows on purpose while it looks for the largest scale.
BAD_STEPS_FP16 = 30


class TrainingStopped(Exception):
    """Training cannot go on; the last good model has been saved."""


@dataclass(frozen=True)
class Validation:
    """The bound on unseen documents, and on the second halves given the first."""

    bound: Bound
    conditional: Bound | None


def train(settings: Settings, folder: Path) -> Model:
    """Train a model and leave its best version in a folder.

    Raises:
        ValueError: if the settings or the data cannot be used, or the folder holds a model.
        TrainingStopped: after too many non-finite steps in a row.
    """
    for name in ("config.json", "run.json"):
        if (folder / name).exists():
            raise ValueError(f"{folder} holds a run already: choose another folder for this one")
    device = check_device(settings.device)
    torch.manual_seed(settings.seed)
    prepared = prepare(settings)
    network = _network(settings, prepared).to(device)
    model = Model(
        network,
        prepared.tokenizer,
        prepared.method,
        prepared.method.length or settings.max_length,
        prepared.lossless,
    )
    budget = budget_for(prepared.train, settings.batch // settings.accumulate)
    if settings.flops:
        settings = replace(settings, steps=_affordable_steps(settings, prepared, network, budget))
    optimisers = make_optimisers(network, settings)
    average = MovingAverage(network, settings.average)
    scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16")
    loader = Loader(prepared.train, prepared.method, budget, settings.seed, settings.workers)
    folder.mkdir(parents=True, exist_ok=True)
    record_run(folder, settings, network, prepared)
    if settings.compile:
        network.compile()

    best, bad_in_a_row, skipped = math.inf, 0, 0
    batches = iter(loader)
    meter = Meter(loader, device)
    with Reporter(folder, settings.steps) as reporter:
        if prepared.cut:
            reporter.say(f"{prepared.cut} documents were cut to {settings.max_length} tokens")
        for step in range(1, settings.steps + 1):
            factor = learning_rate_factor(
                settings.schedule,
                step - 1,
                settings.steps,
                min(settings.warmup, settings.steps // 2),
                settings.decay,
            )
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = settings.learning_rate * factor
            loss = _accumulate_gradients(network, batches, settings, scaler, device, meter)
            for optimiser in optimisers:
                scaler.unscale_(optimiser)
            norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip))
            if math.isfinite(loss) and math.isfinite(norm):
                for optimiser in optimisers:
                    scaler.step(optimiser)
                average.update(network)
                bad_in_a_row = 0
            else:
                bad_in_a_row += 1
                skipped += 1
            scaler.update()
            network.zero_grad(set_to_none=True)
            if bad_in_a_row >= _patience(settings):
                if not math.isfinite(best):
                    _save(model, average, folder, settings, prepared)
                raise TrainingStopped(
                    f"loss or gradient was not finite {bad_in_a_row} times in a row, the last at "
                    f"step {step} (loss {loss}, gradient norm {norm}): the best model so far is in "
                    f"{folder}; try a lower learning_rate, or another precision"
                )
            if step % settings.log_every == 0 or step == settings.steps:
                reporter.step(
                    step,
                    {
                        "loss": loss,
                        "gradient_norm": norm,
                        "learning_rate": settings.learning_rate * factor,
                        "skipped": skipped,
                        **meter.read(),
                    },
                )
            if step % settings.validate_every == 0 or step == settings.steps:
                average.swap(network)
                with _autocast(settings, device):
                    metrics = validation_metrics(validate(model, prepared, settings), prepared)
                metrics["flops"] = meter.flops
                reporter.validation(step, metrics, _sentence(metrics, prepared))
                if metrics["nats_per_document"] < best:
                    best = metrics["nats_per_document"]
                    model.save_pretrained(folder, model_card(settings, prepared, metrics, network))
                with _autocast(settings, device):
                    _write_samples(model, folder, settings, step)
                average.swap(network)
                meter.restart()
    if not math.isfinite(best):
        _save(model, average, folder, settings, prepared)
    return Model.from_pretrained(folder, device)


def validate(model: Model, prepared: Prepared, settings: Settings) -> Validation:
    """The bound of a model on the validation documents, always with the same noise."""
    budget = budget_for(prepared.valid, settings.batch)

    def bound(**more: object) -> Bound:
        return likelihood_bound(
            model.network,
            model.method,
            prepared.valid,
            budget,
            settings.valid_draws,
            **more,  # type: ignore[arg-type]
        )

    conditional = None
    if settings.given_share > 0 and model.method.bounded:
        lengths = [len(prepared.valid[number]) for number in range(len(prepared.valid))]
        conditional = bound(givens=[given_prefix(length, length // 2) for length in lengths])
    return Validation(bound(validating=True), conditional)


def validation_metrics(validation: Validation, prepared: Prepared) -> dict[str, float]:
    """The figures to report and record."""
    bound = validation.bound
    metrics = {"nats_per_document": bound.nats_per_document, "stderr": bound.standard_error}
    if prepared.method.bounded:
        metrics["nats_per_token"] = bound.nats_per_token
        metrics["bits_per_byte"] = bound.bits_per_byte(prepared.valid_bytes)
    if validation.conditional:
        metrics["conditional_nats_per_token"] = validation.conditional.nats_per_token
    return metrics


class Meter:
    """Tokens per second, share of the time spent waiting for data, FLOPs, and memory."""

    def __init__(self, loader: Loader, device: torch.device) -> None:
        self._loader, self._device = loader, device
        self.flops = 0.0  # of all steps so far
        self.restart()

    def restart(self) -> None:
        """Start measuring afresh, as after a validation."""
        self.tokens = 0
        self._started, self._waited = time.perf_counter(), self._loader.waited

    def read(self) -> dict[str, float]:
        """The figures since the last reading."""
        seconds = time.perf_counter() - self._started
        waited = self._loader.waited - self._waited
        result = {
            "tokens_per_second": self.tokens / seconds,
            "waiting": waited / seconds,
            "flops": self.flops,
            "memory_mib": _memory_mib(self._device),
        }
        self.restart()
        return result


def _affordable_steps(
    settings: Settings, prepared: Prepared, network: Network, budget: Budget
) -> int:
    """How many steps the FLOPs of the settings pay for, judged by the first batches."""
    loader = Loader(prepared.train, prepared.method, budget, settings.seed)
    some = [training_flops(network.config, batch) for batch in islice(loader, 16)]
    return max(1, round(settings.flops / settings.accumulate / (sum(some) / len(some))))


def _accumulate_gradients(
    network: Network,
    batches: Iterator[Batch],
    settings: Settings,
    scaler: torch.amp.GradScaler,
    device: torch.device,
    meter: Meter,
) -> float:
    """One step's gradients; its loss in nats per document.

    Divided by the planned number of documents, never by how many a batch happened to hold: else
    documents that share their batch with few others, the long ones, would count for more.
    """
    total = 0.0
    for _ in range(settings.accumulate):
        batch = next(batches)
        meter.flops += training_flops(network.config, batch)
        batch = batch.to(device)
        with _autocast(settings, device):
            loss = batch_loss(network, batch, scaler.get_scale() / settings.batch)
        scaler.scale(loss.total / settings.batch).backward()
        total += float(loss.total.detach()) / settings.batch
        meter.tokens += batch.x_t.rows
    return total


def _autocast(settings: Settings, device: torch.device) -> contextlib.AbstractContextManager[None]:
    if settings.precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[settings.precision])


def _network(settings: Settings, prepared: Prepared) -> Network:
    config = preset(
        settings.preset, prepared.tokenizer.vocabulary, prepared.method.heads, settings.dropout
    )
    train = prepared.train
    config = replace(
        config, mean_length=train.mean_length, length_dispersion=train.length_dispersion
    )
    return Network(config, settings.checkpointing)


def _save(
    model: Model,
    average: MovingAverage,
    folder: Path,
    settings: Settings,
    prepared: Prepared,
) -> None:
    """Save the moving average of the weights, without figures."""
    average.swap(model.network)
    model.save_pretrained(folder, model_card(settings, prepared, None, model.network))
    average.swap(model.network)


def _write_samples(model: Model, folder: Path, settings: Settings, step: int) -> None:
    if settings.samples:
        samples = model.generate(
            num_samples=settings.samples, steps=settings.sample_steps, seed=settings.seed
        )
        model.network.train()
        write_text(folder / "samples" / f"{step:08d}.txt", "\n\n".join(map(str, samples)) + "\n")


def _sentence(metrics: dict[str, float], prepared: Prepared) -> str:
    method = prepared.method
    what = "exact" if method.exact else "bound" if method.bounded else "loss"
    sentence = (
        f"{what} {metrics['nats_per_document']:.2f} ± {metrics['stderr']:.2f} nats per document"
    )
    if method.bounded:
        per_token, per_byte = metrics["nats_per_token"], metrics["bits_per_byte"]
        sentence += f", {per_token:.3f} per token, {per_byte:.3f} {byte_label(prepared.lossless)}"
    if "conditional_nats_per_token" in metrics:
        half = metrics["conditional_nats_per_token"]
        sentence += f"; second halves given the first {half:.3f} nats per token"
    return sentence


def _patience(settings: Settings) -> int:
    if settings.precision == "fp16":
        return max(settings.bad_steps, BAD_STEPS_FP16)
    return settings.bad_steps


def _memory_mib(device: torch.device) -> float:
    """The most memory used so far, on the device that trains."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
