"""Requests and answers as they travel: what may be asked, and in which words it is answered."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Text = Annotated[str, Field(max_length=2**18)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Probability = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class _Asked(BaseModel):
    # Numbers in quotation marks and misspelt names are refused, not guessed at.
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, asked: Any) -> Any:
        """OpenAI's clients may say null where they choose nothing."""
        if not isinstance(asked, dict):
            return asked
        return {name: value for name, value in asked.items() if value is not None}


class Writing(_Asked):
    """What all requests for text have in common."""

    n: int = Field(1, ge=1, description="How many texts.")
    steps: int = Field(64, ge=1, description="Of the time grid; more are better and slower.")
    temperature: float | None = Field(
        None,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Of the tokens; 0 for the likeliest. Without, as the model suggests, else 1.",
    )
    top_p: Probability | None = Field(
        None, description="Draw from the smallest set of this probability; without, likewise."
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Of all draws; the answer names the one drawn."
    )
    max_tokens: int | None = Field(
        None, ge=1, lt=2**31, description="That are inserted; without, as the model is able to."
    )
    stream: bool = Field(False, description="Answer with server-sent events.")

    def controls(self, given: int, longest: int) -> dict[str, object]:
        """The same as `didlm.Model.generate` takes it, for `given` tokens of a text."""
        limits: dict[str, object] = {}
        if self.max_tokens is not None:
            limits["max_length"] = max(1, min(given + self.max_tokens, longest))
        return {
            "steps": self.steps,
            "temperature": self.temperature,
            "top_p": self.top_p,
            **limits,
        }


class CompletionRequest(Writing):
    """As OpenAI's clients ask; `steps` is ours."""

    model: str | None = Field(None, max_length=256)
    prompt: Text | list[Text] | list[int] | list[list[int]] | None = Field(
        None, description="How the text begins; a list of texts is as many requests."
    )
    suffix: Text | None = Field(None, description="How it ends.")
    stop: Text | Annotated[list[Text], Field(max_length=4)] | None = Field(
        None, description="Where these occur the finished text is cut."
    )
    stream_options: dict[str, bool] | None = None
    user: str | None = Field(None, max_length=256, description="Not used.")
    logprobs: int | None = Field(None, description="Not supported.")
    echo: bool | None = Field(None, description="Not supported.")
    best_of: int | None = Field(None, description="Not supported.")
    frequency_penalty: float | None = Field(None, description="Not supported, but for 0.")
    presence_penalty: float | None = Field(None, description="Not supported, but for 0.")
    logit_bias: dict[str, float] | None = Field(None, description="Not supported.")


class InfillRequest(Writing):
    """A template whose blanks are to be filled."""

    template: Text = Field(
        description="Text with blanks: [...] of any length, [...5], [...2-5], [_] for one token."
    )


class ScoreRequest(_Asked):
    """A text whose likelihood is to be bounded."""

    text: Text
    given: Text | None = Field(None, description="A template that the text matches.")
    draws: int = Field(64, ge=8, description="States of the text to visit.")
    seed: int = Field(0, ge=-(2**63), lt=2**63)


class GapsRequest(_Asked):
    """A text, or its tokens, of which some may be given and some gaps closed."""

    text: Text | None = None
    tokens: Annotated[list[TokenId], Field(max_length=2**16)] | None = None
    given: Annotated[list[bool], Field(max_length=2**16)] | None = Field(
        None, description="With tokens: which of them are given."
    )
    open: Annotated[list[bool], Field(max_length=2**16)] | None = Field(
        None, description="With tokens: into which gaps tokens may come, one more than tokens."
    )
    t: Probability = Field(0.5, description="The share of the text that is thought to be missing.")
    top: int = Field(5, ge=0, description="How many of the likeliest tokens to name.")


class AnimationRequest(_Asked):
    """A text with the step at which each of its tokens came."""

    tokens: Annotated[list[TokenId], Field(min_length=1, max_length=2**16)]
    born: Annotated[list[int], Field(min_length=1, max_length=2**16)]
    times: Annotated[
        list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, max_length=2**14)
    ] = Field(description="Of the steps, from 0 on.")


class Usage(BaseModel):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


FinishReason = Literal["stop", "length"]


class CompletionChoice(BaseModel):
    """What is written between a prompt and a suffix."""

    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: None = None


class Completion(BaseModel):
    """As OpenAI's clients expect it."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    seed: int | None = None


class InfillChoice(BaseModel):
    """A template, filled."""

    index: int
    text: str  # all of it
    finish_reason: FinishReason
    tokens: list[int]
    born: list[int]  # the step at which each token came, 0 if it was given
    pieces: list[str]  # the text of each token
    steps: int
    nfe: int  # network calls that it took part in


class Infilling(BaseModel):
    """All fillings of a template."""

    model: str
    seed: int
    choices: list[InfillChoice]
    usage: Usage


class Scored(BaseModel):
    """A lower bound on a log-likelihood, in nats."""

    log_likelihood: float
    standard_error: float
    tokens: int
    nats_per_token: float


class LikelyToken(BaseModel):
    """A token that may be missing."""

    text: str
    probability: float


class OneGap(BaseModel):
    """A gap of a text."""

    position: int  # tokens before it
    before: str  # the token before it
    rate: float  # how many tokens are missing here, in expectation
    likely: list[LikelyToken]


class Gaps(BaseModel):
    """All gaps of a text, from left to right."""

    gaps: list[OneGap]


class OneModel(BaseModel):
    """As OpenAI's clients expect it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "didlm"
    defaults: dict[str, float | bool] = Field({}, description="What it suggests, where it does.")


class Models(BaseModel):
    """The one model that is served."""

    object: Literal["list"] = "list"
    data: list[OneModel]


class Problem(BaseModel):
    """What was wrong, in a sentence."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Refusal(BaseModel):
    """As OpenAI's clients expect it."""

    error: Problem
