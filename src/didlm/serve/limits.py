"""How much a service takes on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how many may wait."""

    batch: int = 16  # texts that are written at once
    waiting: int = 32  # texts that wait for a place; a question counts as one
    texts: int = 16  # of one request
    steps: int = 1024
    blanks: int = 64  # of one template
    draws: int = 256  # of a score
    top: int = 50  # tokens that are named at a gap
    body: int = 2**18  # bytes
    seconds: float = 300.0  # until a request is given up
    body_seconds: float = 10.0  # in which its body must have come

    def __post_init__(self) -> None:
        for name in ("batch", "waiting", "texts", "body"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1: got {getattr(self, name)}")
        if not self.seconds > 0:
            raise ValueError(f"a request needs some seconds: got {self.seconds}")
