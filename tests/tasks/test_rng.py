import random

from hypothesis import given
from hypothesis import strategies as st

from evalkit.tasks.common.rng import permutation, rng


def test_equal_parts_give_equal_numbers_and_others_do_not():
    assert rng("vt", 512, 42, 7, "keys").random() == rng("vt", 512, 42, 7, "keys").random()
    streams = [("vt", 512, 42, 7, "keys"), ("vt", 512, 42, 7, "values"), ("vt", 512, 42, 8, "keys")]
    streams += [("vt", 5124, 2, 7, "keys"), ("vt", 512, 427, "keys")]
    assert len({rng(*parts).random() for parts in streams}) == len(streams)


def test_the_numbers_are_pinned():
    """Another value here means that every generated sample has changed."""
    assert rng("needle", 1).random() == 0.7468620534772396
    assert list(permutation(10, rng("needle", 2))) == [2, 5, 3, 0, 9, 6, 8, 1, 7, 4]


def test_the_global_generator_is_left_alone():
    random.seed(5)
    state = random.getstate()
    list(permutation(10, rng("a")))
    assert random.getstate() == state


@given(st.integers(0, 200), st.integers())
def test_a_permutation_holds_everything_once(size, seed):
    assert sorted(permutation(size, random.Random(seed))) == list(range(size))


@given(st.lists(st.integers()), st.integers(0, 99))
def test_lists_are_shuffled_as_by_the_standard_library(values, seed):
    ours, source = values.copy(), rng("shuffle", seed)
    theirs = random.Random()
    theirs.setstate(source.getstate())
    source.shuffle(ours)
    theirs.shuffle(values)
    assert ours == values
    assert source.random() == theirs.random()


def test_a_permutation_is_lazy():
    stream = permutation(10**15, random.Random(1))
    assert len({next(stream) for _ in range(1000)}) == 1000
