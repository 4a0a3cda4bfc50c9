"""Running the evaluation harness, quietly and only where it is installed."""

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from didlm.pretrained import Model


def run_harness(
    model: Model,
    tasks: Sequence[str | dict[str, Any]],
    include: Path | None = None,
    shots: int | None = None,
    limit: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The results of the harness: `results`, `samples`, and what else it says.

    Args:
        model: the model.
        tasks: names of its tasks, or configurations of one's own.
        include: a folder with further tasks.
        shots: examples in each prompt; as the tasks say without.
        limit: documents of each task, for a quick look.
        **options: see `didlm.harness.model.HarnessModel`.

    Raises:
        ValueError: if the harness is not installed, or there is no such task.
    """
    try:
        from lm_eval import simple_evaluate
    except ImportError:
        raise ValueError("the harness is not installed: pip install 'didlm[lm-eval]'") from None
    import datasets

    from didlm.harness.model import HarnessModel

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    manager = _manager(include)
    for task in tasks:
        if isinstance(task, str) and not manager.match_tasks([task]):
            raise ValueError(f"the harness has no task '{task}': name a folder with --include")
    found = simple_evaluate(
        model=HarnessModel(model, **options),
        tasks=list(tasks),
        num_fewshot=shots,
        limit=limit,
        task_manager=manager,
        bootstrap_iters=1000,
    )
    assert found is not None
    return dict(found)


@cache
def _manager(include: Path | None) -> Any:
    """All tasks there are, which takes seconds to find out."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=None if include is None else str(include))
