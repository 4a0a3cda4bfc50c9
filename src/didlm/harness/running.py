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
    manager = _manager_of([task for task in tasks if isinstance(task, str)], include)
    from lm_eval import simple_evaluate

    from didlm.harness.model import HarnessModel

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


def check_task(name: str) -> None:
    """Let the harness load a task that comes with it, with its data.

    Raises:
        ValueError: if it cannot.
    """
    manager = _manager_of([name], None)
    try:
        manager.load([name])
    except Exception as problem:  # the libraries and the network raise a great many kinds
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ValueError(f"the harness cannot load the task '{name}': {reason}") from None


def _manager_of(names: Sequence[str], include: Path | None) -> Any:
    """What knows the tasks of these names; the harness is made quiet first."""
    try:
        import datasets
        import lm_eval  # noqa: F401
    except ImportError:
        raise ValueError("the harness is not installed: pip install 'didlm[lm-eval]'") from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    manager = _manager(include, own_only=True)
    if not all(manager.match_tasks([name]) for name in names):
        manager = _manager(include, own_only=False)
    for name in names:
        if not manager.match_tasks([name]):
            raise ValueError(f"the harness has no task '{name}': name a folder with --include")
    return manager


@cache
def _manager(include: Path | None, own_only: bool) -> Any:
    """The tasks of a folder; all that come with the harness too takes seconds to find out."""
    from lm_eval.tasks import TaskManager

    folder = None if include is None else str(include)
    return TaskManager(include_path=folder, include_defaults=not own_only)
