import subprocess
import sys
from dataclasses import fields
from itertools import islice, pairwise

import numpy as np
import pytest
import torch

from didlm.data.batch import Batch, Budget, fill, make_batch
from didlm.data.corpus import Corpus, Documents
from didlm.data.loader import Loader, Share, _start_worker, budget_for
from didlm.given import check_spans, given_prefix, random_given, short_blanks
from didlm.methods.did import DID
from didlm.methods.examples import Examples
from didlm.workers import start_workers

RNG = np.random.default_rng(0)
CORPUS = Corpus.of([RNG.integers(0, 9, n) for n in RNG.integers(0, 40, 57)])
METHOD = DID(bos=0, given_share=0.3)
BUDGET = Budget(sequences=20, rows=300, target_rows=120, targets=250)


def assert_same(one: Examples, other: Examples) -> None:
    for field in fields(Examples):
        np.testing.assert_array_equal(
            getattr(one, field.name), getattr(other, field.name), field.name
        )


def stream(count: int, chunk: int) -> list[Examples]:
    texts = [CORPUS[number % len(CORPUS)] for number in range(count)]
    return [
        METHOD.training_examples(texts[i : i + chunk], range(i, min(i + chunk, count)), seed=5)
        for i in range(0, count, chunk)
    ]


def test_examples_depend_on_seed_and_number_alone() -> None:
    """However they are grouped when they are made."""
    one, many = Examples.join(stream(120, 1)), Examples.join(stream(120, 50))
    assert_same(one, many)


def test_batches_hold_every_example_once_and_in_order_within_the_budget() -> None:
    whole = Examples.join(stream(400, 32))
    batches = list(fill(stream(400, 32), BUDGET))
    assert_same(Examples.join(batches), whole)
    assert len(batches) > 5
    for batch in batches:
        assert len(batch) <= BUDGET.sequences
        assert len(batch.tokens) <= BUDGET.rows
        assert len(np.unique(batch.row)) <= BUDGET.target_rows
        assert len(batch.row) <= BUDGET.targets
    for batch, following in pairwise(batches):
        both = Examples.join([batch, following.part(0, 1)])
        assert BUDGET.fits(both, 0) == len(batch)  # nothing was cut off early


def test_an_example_too_large_for_any_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="more than a whole batch may hold"):
        list(fill(stream(100, 32), Budget(sequences=5, rows=10, target_rows=10, targets=10)))


def test_parts_and_joins_undo_each_other() -> None:
    whole = Examples.join(stream(60, 60))
    assert_same(Examples.join([whole.part(0, 13), whole.part(13, 13), whole.part(13, 60)]), whole)


def loader(seed: int, batch: int = 40, budget: Budget = BUDGET, **more) -> Loader:
    return Loader(CORPUS, METHOD, budget, batch, seed, **more)


def steps(loader: Loader, count: int) -> list[list[Batch]]:
    return list(islice(iter(loader), count))


def contents(steps: list[list[Batch]]) -> list[list[list[float]]]:
    return [
        [x for b in step for x in (b.number.tolist(), b.x_t.tokens.tolist(), b.target.tolist())]
        for step in steps
    ]


def test_every_step_takes_exactly_its_examples() -> None:
    """However many batches they need: nothing is dropped, redrawn or left for the next step."""
    taken = steps(loader(seed=1), 6)
    assert max(len(batches) for batches in taken) > 1
    for step, batches in enumerate(taken):
        numbers = [number for batch in batches for number in batch.number.tolist()]
        assert numbers == list(range(40 * step, 40 * (step + 1)))


def test_a_loader_resumes_exactly() -> None:
    straight = contents(steps(loader(seed=1), 12))
    assert contents(steps(loader(seed=1, start=5), 7)) == straight[5:]
    first = loader(seed=1)
    steps(first, 5)
    assert first.steps == 5
    assert contents(steps(first, 7)) == straight[5:]  # the same loader, iterated afresh


def test_workers_change_nothing_and_are_safe_to_spawn() -> None:
    there = loader(seed=2, workers=2)
    assert contents(steps(there, 6)) == contents(steps(loader(seed=2), 6))
    assert there.waited > 0


def test_the_first_pool_imports_what_later_ones_need(tmp_path) -> None:
    """Those of training, while text is read: else each worker would import them for itself."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from didlm.store.encoding import _start_worker\n"
        "from didlm.workers import expect_workers, start_workers\n"
        "def imported(): return sorted({'torch', 'colorsys'} & set(sys.modules))\n"
        "if __name__ == '__main__':\n"
        "    expect_workers('colorsys')\n"
        "    print(*(start_workers(1, _start_worker, 0).submit(imported).result() for _ in '12'))\n"
    )
    run = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert run.stdout == "['colorsys'] ['colorsys']\n", run.stderr


def test_workers_leave_the_other_cores_alone() -> None:
    with start_workers(1, _start_worker, loader(seed=0)._maker) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_processes_share_every_step_without_overlap(ranks) -> None:
    shares = [steps(loader(seed=3, share=Share(rank, ranks)), 5) for rank in range(ranks)]
    for step, whole in enumerate(steps(loader(seed=3), 5)):
        parts = [batch for share in shares for batch in share[step]]
        for name in ("number", "deleted", "constant", "target", "token"):
            alone = torch.cat([getattr(batch, name) for batch in whole])
            together = torch.cat([getattr(batch, name) for batch in parts])
            assert torch.equal(alone, together), name


def test_a_batch_that_cannot_be_shared_equally_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 40 cannot be shared equally by 3 processes"):
        loader(seed=0, share=Share(0, 3))


def test_every_epoch_visits_every_document_once_in_an_order_of_its_own() -> None:
    some = loader(seed=3)
    orders = [
        [some.text_of(epoch * len(CORPUS) + place) for place in range(len(CORPUS))]
        for epoch in range(2)
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(len(CORPUS)))
    assert orders[0] != orders[1]


def test_an_example_costs_the_same_however_many_texts_there_are() -> None:
    """Nothing of the size of the corpus is looked at for each of them."""

    class Counted(Documents):
        @property
        def lengths(self):
            raise AssertionError("asked for all lengths")

    corpus = Counted(CORPUS.shards, CORPUS.table)
    (batches,) = steps(Loader(corpus, METHOD, BUDGET, 40, 0), 1)
    assert sum(batch.documents for batch in batches) == 40


def test_prompts_are_given_and_never_deleted() -> None:
    corpus = Corpus.of([np.arange(1, 9)] * 5)
    corpus.table["prompt"] = 3
    (batches,) = steps(Loader(corpus, METHOD, BUDGET, 20, 0), 1)
    for batch in batches:
        x_t = batch.x_t
        for start, end in pairwise(x_t.offsets.tolist()):
            assert x_t.tokens[start + 1 : start + 4].tolist() == [1, 2, 3]
            assert (x_t.given[start + 1 : end] != 0).tolist() == [True] * 3 + [False] * (
                end - start - 4
            )
            assert x_t.open[start : start + 3].tolist() == [False] * 3
        assert not batch.count[~x_t.open].any()


def test_a_silenced_batch_teaches_nothing() -> None:
    ((batch, *_),) = steps(loader(seed=0), 1)
    silent = batch.silenced()
    assert torch.equal(silent.x_t.tokens, batch.x_t.tokens)
    for name in ("count", "count_weight", "constant", "complete_weight", "target"):
        assert not getattr(silent, name).any()


def test_numbers_deleted_are_spread_evenly_over_consecutive_examples() -> None:
    method = DID(bos=0, weighting="simple")
    texts = [np.arange(1, 100)] * 64
    examples = method.training_examples(texts, range(64), seed=0)
    missing = np.add.reduceat(examples.count, examples.offsets[:-1])
    gaps = np.diff(np.sort(np.append(missing, [0, 99])))
    assert gaps.max() <= 4  # 64 points on 0..99: random ones would leave gaps of 7 and more


@pytest.mark.parametrize("fixed", [False, True])
def test_states_of_evaluation_weigh_one_document(fixed) -> None:
    """With their weights, the numbers missing count each insertion once: sum_k (1/k) k = m."""
    method = DID(bos=0, fixed_length=fixed or None)
    text = np.arange(1, 31)
    examples = method.evaluation_examples([text] * 40, range(40), seed=0, draws=5)
    assert examples.count.sum() / 40 == pytest.approx(30, rel=1e-9)
    assert len(examples) == 40 * (5 if fixed else 6)


def test_given_text_is_kept_closed_and_without_targets() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        length = int(rng.integers(1, 15))
        given = random_given(length, rng)
        text = rng.integers(1, 5, length)
        method = DID(bos=0)
        free = int((given.spans == 0).sum())
        some = method.corrupt(
            [text], [given], [method._evaluation_noise(free, 1, rng)[-1]], [rng], np.array([0])
        )
        assert some.given.sum() == (given.spans != 0).sum()
        np.testing.assert_array_equal(some.tokens[some.given], text[given.spans != 0])
        assert (some.count[~some.open] == 0).all()
        assert some.open[0] != given.starts_closed
        assert some.open[-1] != given.ends_closed


def test_short_blanks_leave_out_a_few_words() -> None:
    rng = np.random.default_rng(2)
    sizes = []
    for _ in range(300):
        length, count = int(rng.integers(1, 200)), int(rng.integers(1, 4))
        given = short_blanks(length, count, rng)
        check_spans(given.spans)
        blanks = (
            "".join("_" if span == 0 else "x" for span in given.spans).replace("x", " ").split()
        )
        assert 1 <= len(blanks) <= count
        assert len(np.unique(given.spans[given.spans > 0])) <= count + 1
        assert (given.starts_closed, given.ends_closed) == (given.spans[0] > 0, given.spans[-1] > 0)
        sizes += [len(blank) for blank in blanks if count == 1]
    assert min(sizes) == 1
    assert 4 < np.mean(sizes) < 10
    assert max(sizes) <= 31


def test_prompts_close_the_gap_before_them() -> None:
    given = given_prefix(5, 2)
    assert given.starts_closed
    assert given.spans.tolist() == [1, 1, 0, 0, 0]
    assert not given_prefix(5, 0).starts_closed


def test_a_batch_on_another_device_is_the_same_batch() -> None:
    batch = make_batch(Examples.join(stream(5, 5)))
    moved = batch.to("meta")
    assert moved.x_t.tokens.device.type == moved.target.device.type == "meta"
    assert moved.longest == batch.longest


def test_budgets_leave_room_for_the_longest_document() -> None:
    budget = budget_for(CORPUS, 8)
    assert budget.rows >= CORPUS.longest + 1
    assert budget.targets >= CORPUS.longest
