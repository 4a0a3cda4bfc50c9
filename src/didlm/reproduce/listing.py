"""Texts to read: examples, with and without prompts, and one text as it grows."""

from didlm.reproduce.experiment import Experiment
from didlm.reproduce.samples import SAMPLER, Request, figures_of
from didlm.reproduce.table import Outcome
from didlm.reproduce.workshop import Workshop


def listing(shop: Workshop, experiment: Experiment) -> Outcome:
    """The texts by their titles."""
    options = dict(experiment.options)
    frames, prompts = options.pop("frames", False), options.pop("prompts", [])
    if frames:
        return Outcome(texts=shop.once("frames", lambda: growth(shop, **options)))
    if prompts:
        texts = {}
        for prompt in prompts:
            found = figures_of(shop, Request(**options, prompt=prompt))
            text, given = found["texts"][0], found["prompts"][0]
            whole = text.startswith(given)
            marked = f"[{given}]{text[len(given) :]}" if whole else text
            texts[f"Prompt length {shop.scale.tokens(prompt)}, the prompt in brackets"] = marked
        return Outcome(texts=texts)
    found = figures_of(shop, Request(**options))
    some = found["texts"][: options["num"]]
    return Outcome(texts={f"Sample {number}": text for number, text in enumerate(some, 1)})


def growth(shop: Workshop, run: str, steps: int, num: int, batch: int) -> dict[str, str]:
    """One text after every step."""
    model = shop.writer(run)
    (sample,) = model.generate(
        num_samples=num, batch_size=batch, steps=steps, sampler=SAMPLER, seed=0, trace=True
    )
    return {f"Step {frame.step}": model.tokenizer.decode(frame.tokens) for frame in sample.frames}
