"""What every README.md of a model begins and ends with, so that the hub and people can read it."""

import didlm

PLACE = "PATH"  # stands for where the model is, until it is pushed to the hub


def front_matter(tags: list[str]) -> list[str]:
    """The lines that the hub reads."""
    return [
        "---",
        "library_name: didlm",
        "pipeline_tag: text-generation",
        f"tags: [{', '.join(['didlm', *tags])}]",
        "---",
        "",
    ]


def usage() -> list[str]:
    """How to use the model."""
    return [
        "## Use",
        "",
        "```",
        "pip install 'didlm[hub]'",
        "```",
        "",
        "```python",
        "import didlm",
        "",
        f'model = didlm.load("{PLACE}")',
        "print(model.generate(num_samples=1, seed=0)[0])",
        "```",
        "",
    ]


def bare_card(method: str, said: str = "") -> str:
    """The card of a model of which little is known but its method."""
    said = said or f"A model of the method `{method}`, saved by didlm {didlm.__version__}."
    return "\n".join([*front_matter([method]), "# A didlm model", "", said, "", *usage()])


def placed(card: str, place: str) -> str:
    """The card with the place from which to load the model."""
    return card.replace(f'didlm.load("{PLACE}")', f'didlm.load("{place}")')
