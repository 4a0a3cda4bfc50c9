"""What is looked at from time to time: the bound on unseen documents, and what is written."""

from dataclasses import dataclass
from pathlib import Path

from didlm.data.loader import budget_for
from didlm.evaluate.bound import Bound, byte_label, likelihood_bound, prompts_of
from didlm.files import write_text
from didlm.given import GivenText, given_prefix
from didlm.pretrained import Model
from didlm.train.prepare import Prepared
from didlm.train.settings import Settings


@dataclass(frozen=True)
class Validation:
    """The bound on unseen documents, and on the second halves given the first."""

    bound: Bound
    conditional: Bound | None


def validate(model: Model, prepared: Prepared, settings: Settings) -> Validation:
    """The bound of a model on the validation documents, always with the same noise.

    What is given of a document, its prompt, is not scored.
    """
    budget = budget_for(prepared.valid, settings.batch)

    def bound(givens: list[GivenText] | None, validating: bool) -> Bound:
        return likelihood_bound(
            model.network,
            model.method,
            prepared.valid,
            budget,
            settings.valid_draws,
            givens=givens,
            validating=validating,
        )

    conditional, prompts = None, prompts_of(prepared.valid)
    if settings.given_share > 0 and model.method.bounded and not prompts:
        halves = [given_prefix(length, length // 2) for length in prepared.valid.lengths.tolist()]
        conditional = bound(halves, validating=False)
    return Validation(bound(prompts, validating=True), conditional)


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


def sentence(metrics: dict[str, float], prepared: Prepared) -> str:
    """The figures in words."""
    method = prepared.method
    what = "exact" if method.exact else "bound" if method.bounded else "loss"
    said = f"{what} {metrics['nats_per_document']:.2f} ± {metrics['stderr']:.2f} nats per document"
    if method.bounded:
        per_token, per_byte = metrics["nats_per_token"], metrics["bits_per_byte"]
        said += f", {per_token:.3f} per token, {per_byte:.3f} {byte_label(prepared.lossless)}"
    if "conditional_nats_per_token" in metrics:
        half = metrics["conditional_nats_per_token"]
        said += f"; second halves given the first {half:.3f} nats per token"
    return said


def write_samples(model: Model, folder: Path, settings: Settings, step: int) -> None:
    """Let the model write, into a file of this step."""
    if settings.samples:
        samples = model.generate(
            num_samples=settings.samples, steps=settings.sample_steps, seed=settings.seed
        )
        write_text(folder / "samples" / f"{step:08d}.txt", "\n\n".join(map(str, samples)) + "\n")
