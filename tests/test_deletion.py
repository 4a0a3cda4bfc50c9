import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from didlm.deletion import delete_exactly, delete_independently


@forall(st.lists(st.booleans(), max_size=30), st.data())
def test_exactly_the_asked_number_is_deleted_and_nothing_given(marks, data) -> None:
    given = np.cumsum(marks) * np.array(marks, dtype=int)  # every given token its own span
    free = int((given == 0).sum())
    count = data.draw(st.integers(0, free))
    keep = delete_exactly(len(marks), count, np.random.default_rng(0), given)
    assert (~keep).sum() == count
    assert keep[given != 0].all()


def test_every_choice_of_tokens_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    seen = {}
    for _ in range(6000):
        key = tuple(np.flatnonzero(~delete_exactly(4, 2, rng)).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 6
    assert max(abs(n - 1000) for n in seen.values()) < 5 * np.sqrt(1000 * 5 / 6)


def test_independent_deletion_keeps_the_given_and_a_share_of_the_rest() -> None:
    given = np.repeat([1, 0], [1000, 20_000])
    keep = delete_independently(21_000, 0.3, np.random.default_rng(0), given)
    assert keep[:1000].all()
    assert abs(keep[1000:].mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 20_000)
    assert delete_independently(100, 1.0, np.random.default_rng(0)).all()
    assert not delete_independently(100, 0.0, np.random.default_rng(0)).any()


def test_equal_generators_delete_equally() -> None:
    one, two = (delete_independently(50, 0.5, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_impossible_deletions_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="cannot delete 3 of 2 free tokens"):
        delete_exactly(3, 3, rng, np.array([1, 0, 0]))
    with pytest.raises(ValueError, match="cannot delete -1"):
        delete_exactly(3, -1, rng)
    with pytest.raises(ValueError, match=r"survival is a probability: got 1\.5"):
        delete_independently(3, 1.5, rng)
    with pytest.raises(ValueError, match="given has 1 entries, but the text has 3 tokens"):
        delete_independently(3, 0.5, rng, [0])
    with pytest.raises(ValueError, match="cannot have -1 tokens"):
        delete_exactly(-1, 0, rng)
