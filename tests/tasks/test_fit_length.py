import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.tasks.common.fit_length import Fitter, Grid, Line, calibrate, fit


class Heap:
    """A draft whose haystack unit `i` takes ``costs[i % len(costs)]``."""

    def __init__(self, grid, costs, base=10):
        self.grid, self.costs, self.base = grid, costs, base
        self.built = []

    def size(self, units):
        return units

    def build(self, units):
        self.built.append(units)
        return Sample("a/0", "a", "x" * self.cost(units), (), "m", 1)

    def cost(self, units):
        whole, rest = divmod(units, len(self.costs))
        return self.base + whole * sum(self.costs) + sum(self.costs[:rest])


def length(sample):
    return len(sample.text)


def test_the_grid_ends_with_its_last_size():
    grid = Grid(10, 10, last=37)
    assert [grid.at(k) for k in range(grid.count)] == [10, 20, 30, 37]
    assert Grid(10, 10, last=5).count == 1
    assert Grid(10, 10, last=5).at(0) == 5


@given(
    costs=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    first=st.integers(1, 20),
    step=st.integers(1, 30),
    last=st.one_of(st.none(), st.integers(1, 400)),
    limit=st.integers(20, 3000),
    slope=st.floats(0.2, 200),
)
def test_the_largest_size_that_fits_is_found_whatever_the_estimate(
    costs, first, step, last, limit, slope
):
    draft = Heap(Grid(first, step, last), costs)
    sizes = [draft.grid.at(k) for k in range(min(draft.grid.count, 3000))]
    fitting = [units for units in sizes if draft.cost(units) <= limit]
    # An estimate that is off by its own margin may stop one step early: allow no such luck here.
    line = Line(0.0, slope)
    if not fitting:
        with pytest.raises(EvalkitError, match=r"^c: too short"):
            fit(draft, length, limit, line, name="c")
        return
    found = length(fit(draft, length, limit, line, name="c"))
    assert found <= limit
    honest = all(0.9 * slope < cost < 1.1 * slope for cost in costs)
    assert found == draft.cost(max(fitting)) or not honest


@given(
    costs=st.lists(st.integers(20, 24), min_size=3, max_size=30),
    step=st.integers(1, 30),
    limit=st.integers(2000, 9000),
)
def test_with_a_measured_estimate_it_is_the_largest_and_few_prompts_are_built(costs, step, limit):
    other = Heap(Grid(step, step), costs[::-1], base=12)
    line = calibrate(other, length, limit)
    draft = Heap(Grid(step, step), costs)
    found = length(fit(draft, length, limit, line, name="c"))
    best = max(u for u in range(step, 1000, step) if draft.cost(u) <= limit)
    assert found == draft.cost(best)
    assert len(draft.built) <= 4
    assert len(other.built) <= 4


def test_what_does_not_grow_is_refused_instead_of_growing_for_ever():
    draft = Heap(Grid(1, 1), [1])
    with pytest.raises(EvalkitError, match=r"cell: the prompt does not grow"):
        Fitter("cell", 100, lambda index, renderer: draft, "tokens").sample(0, Constant())
    assert max(draft.built) < 100


class Constant:
    """A renderer that finds 5 tokens in everything."""

    def render(self, sample):
        return type("Prompt", (), {"token_ids": range(5)})

    def count(self, sample):
        return 5


def test_errors_of_a_draft_name_the_cell():
    def broken(index, renderer):
        raise EvalkitError("no words left")

    with pytest.raises(EvalkitError, match=r"^cell@5: no words left$"):
        Fitter("cell@5", 5, broken).sample(0, Constant())
