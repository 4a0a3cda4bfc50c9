"""Math word problems after fine-tuning: one sample of each answer."""

from functools import cache

from didlm.generate.template import Blank, Parts
from didlm.pretrained import Model
from didlm.reproduce.experiment import Experiment, Row, Value
from didlm.reproduce.pairs import Worked, answer_of, read_questions
from didlm.reproduce.samples import SAMPLER
from didlm.reproduce.table import Outcome, filled
from didlm.reproduce.workshop import Workshop

LEAST_ROOM = 4  # the share of a text, one in so many, that is left for an answer


def gsm8k(shop: Workshop, experiment: Experiment) -> Outcome:
    """Accuracy for each model, top-p and number of steps."""

    @cache
    def questions() -> list[Worked]:
        """Read before anything is trained for them."""
        return read_questions(shop.sources, "gsm8k", shop.scale.documents)

    def cell(row: Row, column: str | int) -> Value:
        steps, top_p = int(column), float(row.more["top_p"])

        def found() -> float:
            asked, batch = questions(), experiment.options["batch"]
            shop.say(f"{row.run}: {len(asked)} questions in {steps} steps, top-p {top_p:g}")
            return accuracy(shop.writer(row.run), asked, steps, top_p, batch)

        return float(shop.once(f"gsm8k-{row.run}-{steps}-{top_p:g}", found))

    return Outcome(filled(experiment, cell))


def accuracy(
    model: Model, questions: list[Worked], steps: int, top_p: float, batch: int, seed: int = 0
) -> float:
    """Percent of the questions whose answer, after the last mark, is the right number."""
    # Questions that leave no room for an answer, as at small scales, lose their beginning.
    room = model.longest - model.longest // LEAST_ROOM
    prompts = [model.tokenizer.end_of(question.prompt, room) for question in questions]
    templates: list[Parts] = [[prompt, Blank()] for prompt in prompts]
    samples = model.infill_each(
        templates, seed=seed, batch_size=batch, steps=steps, top_p=top_p, sampler=SAMPLER
    )
    right = [
        answer_of(sample.text) is not None and answer_of(sample.text) == answer_of(question.answer)
        for sample, question in zip(samples, questions, strict=True)
    ]
    return 100 * sum(right) / len(right)
