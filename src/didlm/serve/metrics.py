"""What the service counts about itself, in the text form of Prometheus."""

import threading
from collections import defaultdict
from collections.abc import Mapping

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # seconds

_HELP = {
    "didlm_requests_total": ("counter", "Requests answered, by route and status."),
    "didlm_request_seconds": ("histogram", "From the request to the end of its answer, by route."),
    "didlm_texts_total": ("counter", "Texts finished."),
    "didlm_tokens_total": ("counter", "Tokens inserted into finished texts."),
    "didlm_passes_total": ("counter", "Passes over the batch, each at most one network call."),
    "didlm_text_passes_total": ("counter", "The same, times the texts in the batch."),
    "didlm_rows_total": ("counter", "Rows of texts that were in these passes."),
    "didlm_dropped_total": ("counter", "Requests dropped before their end, by why."),
    "didlm_batch_texts": ("gauge", "Texts being written now."),
    "didlm_waiting_texts": ("gauge", "Texts waiting for a place in the batch."),
}


class Metrics:
    """Counters, gauges and one histogram; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, (kind, _) in _HELP.items():
            if kind != "histogram":
                self._values[name] = defaultdict(float)

    def count(self, name: str, by: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._values[name][_written(labels)] += by

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[name][""] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        with self._lock:
            for edge in (*map(str, BUCKETS), "+Inf"):
                # Every bucket also counts what is in those below it.
                self._values[f"{name}_bucket"][_written({**labels, "le": edge})] += value <= float(
                    edge
                )
            self._values[f"{name}_sum"][_written(labels)] += value
            self._values[f"{name}_count"][_written(labels)] += 1

    def value(self, name: str, **labels: str) -> float:
        """What a counter or gauge says now."""
        with self._lock:
            return self._values[name].get(_written(labels), 0.0)

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        with self._lock:
            lines: list[str] = []
            for name, (kind, what) in _HELP.items():
                lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
                parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
                for part in parts:
                    values = self._values[name + part] or ({"": 0.0} if not part else {})
                    lines += [f"{name}{part}{labels} {n:.12g}" for labels, n in values.items()]
            return "\n".join(lines) + "\n"


def _written(labels: Mapping[str, str]) -> str:
    """Labels are the service's own words, so nothing needs to be escaped."""
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""
