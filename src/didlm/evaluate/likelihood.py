"""How well a model predicts documents: its likelihood, or the bound on it, with honest errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from didlm.data.corpus import Corpus
from didlm.data.loader import budget_for
from didlm.evaluate.bound import likelihood_bound, prompts_of
from didlm.evaluate.paths import check_paths, path_bound
from didlm.pretrained import Model

REPLICATES = 32  # independent estimates with the same documents
BATCH = 64
AT_ONCE = 2048  # documents in one go
LARGEST_EXPONENT = 700.0  # exp of more is no number


@dataclass(frozen=True, eq=False)
class Likelihood:
    """-log p of documents in nats: exact, or an upper bound on it."""

    method: str
    exact: bool
    nats: np.ndarray  # [R, documents] in each replicate
    tight_nats: np.ndarray | None  # the same by the tighter bound, if there is one (Eq. dse)
    lengths: np.ndarray  # [documents] in tokens
    bytes: int
    cut: int  # documents of which only the beginning is scored
    variable_length: bool  # whether texts are whole documents, and their ends are paid for
    paths: int = 0  # of each document, of the next
    path_nats: np.ndarray | None = None  # [documents] by the bound over paths (Eq. path-bound)
    lossless: bool = True  # whether the tokenizer gives texts back; else bytes are of what it gives

    @property
    def tokens(self) -> int:
        """In all documents."""
        return int(self.lengths.sum())

    @property
    def nats_per_token(self) -> float:
        """Over all documents; ending a document of free length is paid for too."""
        return float(self.nats.sum(1).mean() / self.tokens)

    @property
    def stderr(self) -> float:
        """Of `nats_per_token`, from the noise alone: the documents are what they are."""
        return self._noise(self.nats)

    @property
    def stderr_documents(self) -> float:
        """Of `nats_per_token`, a ratio, from the choice of the documents; NaN of a single one."""
        if len(self.lengths) < 2:
            return float("nan")
        # Long documents have more nats and more tokens: only what is beyond that is an error.
        beyond = self.nats.mean(0) - self.nats_per_token * self.lengths
        return float(beyond.std(ddof=1) * math.sqrt(len(beyond)) / self.tokens)

    def _noise(self, nats: np.ndarray) -> float:
        """The standard error of nats per token over replicates [R, documents]."""
        if len(nats) < 2:
            return 0.0
        return float(nats.sum(1).std(ddof=1) / math.sqrt(len(nats)) / self.tokens)

    def summary(self) -> dict[str, object]:
        """What is written as JSON; bounds are called bounds."""
        per_token = self.nats_per_token
        summary: dict[str, object] = {
            "method": self.method,
            "kind": "exact" if self.exact else "bound",
            "lengths": "variable" if self.variable_length else "fixed",
            "bits_per_byte": per_token * self.tokens / max(1, self.bytes) / math.log(2),
            "bits_per_byte_of": "text" if self.lossless else "normalised text",
            "nats_per_token": per_token,
            "perplexity": math.exp(min(per_token, LARGEST_EXPONENT)),
            "stderr": self.stderr,
            "stderr_documents": None if len(self.lengths) < 2 else self.stderr_documents,
            "nats_per_document": float(self.nats.mean()),
            "documents": self.nats.shape[1],
            "documents_cut": self.cut,
            "tokens": self.tokens,
            "bytes": self.bytes,
        }
        if self.tight_nats is not None:
            tight = float(self.tight_nats.sum(1).mean() / self.tokens)
            summary["nats_per_token_dse"] = tight
            summary["stderr_dse"] = self._noise(self.tight_nats)
        if self.path_nats is not None:
            summary["paths"] = self.paths
            summary["nats_per_token_paths"] = float(self.path_nats.sum() / self.tokens)
        return summary


def evaluate(
    model: Model,
    documents: Sequence[str],
    draws: int = 1,
    seed: int = 0,
    paths: int = 0,
    prompts: Sequence[str] | None = None,
    replicates: int = REPLICATES,
) -> Likelihood:
    """Estimate the likelihood bound of documents, or compute their exact likelihood.

    Args:
        model: the model.
        documents: their texts.
        draws: states to visit of each document in each replicate.
        seed: of the noise.
        paths: for a model of fixed-length text: insertion paths of each document, for a tighter
            bound beside the other. Each takes as many network calls as the text has tokens.
        prompts: what comes before each document, is given, and not scored.
        replicates: independent estimates of a bound, whose spread gives its error.

    Raises:
        ValueError: if there is nothing to score, or the method has no bound.
    """
    if draws < 1:
        raise ValueError(f"a bound takes at least one draw: got {draws}")
    if replicates < 2:
        raise ValueError(f"an error takes at least two replicates: got {replicates}")
    if paths:
        check_paths(model.method, paths)
    method, tokenizer = model.method, model.tokenizer
    tokens = tokenizer.encode_batch(documents)
    given = [0] * len(tokens)
    if prompts is not None:
        before = tokenizer.encode_batch(prompts)
        given = [len(prompt) for prompt in before]
        tokens = [np.append(prompt, text) for prompt, text in zip(before, tokens, strict=True)]
        if max(given) >= model.longest:
            raise ValueError(
                f"a prompt has {max(given)} tokens: the model reads texts of at most "
                f"{model.longest}, and something must follow"
            )
    whole = Corpus.of(tokens, tokenizer.separator)
    whole.table["prompt"] = given
    laid = method.lay_out(whole, model.longest)
    texts, givens = list(laid), prompts_of(laid)
    scored = [text[laid.prompt(n) : method.finish(text)] for n, text in enumerate(texts)]
    if not any(map(len, texts)):
        raise ValueError("there are no tokens to score")
    lossless = model.lossless and tokenizer.lossless(documents)
    cut = sum(len(text) > model.longest for text in tokens) if method.variable_length else 0
    if cut or not method.variable_length or not lossless:  # what is scored is not the documents
        size = sum(tokenizer.count_bytes(text) for text in scored)
    else:
        size = sum(len(text.encode()) for text in documents)
    replicates = 1 if method.exact else replicates
    # Few documents are repeated, each time with noise of its own, so that batches are full.
    at_once = min(replicates, max(1, AT_ONCE // len(texts)))
    bounds = []
    for first in range(0, replicates, at_once):
        corpus = Corpus.of(texts * min(at_once, replicates - first))
        budget = budget_for(corpus, min(BATCH, len(corpus)))
        repeated = givens * (len(corpus) // len(texts)) if givens else None
        bounds.append(
            likelihood_bound(model.network, method, corpus, budget, draws, seed + first, repeated)
        )
    tight = [bound.tight for bound in bounds if bound.tight is not None]
    by_path = []
    for number, text in enumerate(texts if paths else []):
        rng = np.random.default_rng((seed, number))
        by_path.append(path_bound(model.network, method, text, paths, rng))
    return Likelihood(
        method=method.name,
        exact=method.exact,
        nats=np.concatenate([bound.nats for bound in bounds]).reshape(replicates, -1),
        tight_nats=np.concatenate(tight).reshape(replicates, -1) if tight else None,
        lengths=np.array([len(text) for text in scored]),
        bytes=size,
        cut=cut,
        variable_length=method.variable_length,
        paths=paths,
        path_nats=np.array(by_path) if paths else None,
        lossless=lossless,
    )
