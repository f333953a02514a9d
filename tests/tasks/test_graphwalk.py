"""Graph walks: the answer against a search of the prompt's own text, budget, purity."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.scorers import score
from evalkit.tasks.graphwalk import GraphWalkConfig, build
from tests.paths import ROOT
from tests.tasks.fakes import FakeRenderer, FakeTokenizer, digest

EDGE = re.compile(r"edge (\S+) -> (\S+)")


def cell(operation="frontier", length=1024, base_dir=Path(), **more):
    config = {"operations": (operation,), "lengths": (length,), **more}
    (task,) = build(parse({"kind": "graphwalk", **config}, GraphWalkConfig, "r"), base_dir)
    return task


def used(sample, renderer):
    return len(renderer.render(sample).token_ids) + sample.max_new_tokens


def parts(sample):
    """Edges and question of the solved example and of the graph that is asked about."""
    example, graph = sample.text.split("\n\nExample\n\n")[1].split("\n\nGraph\n\n")
    return example, graph


def brute_force(text):
    """The answer to a question, by relaxing every edge until nothing changes."""
    edges = EDGE.findall(text)
    assert len(set(edges)) == len(edges)
    assert all(source != target for source, target in edges)
    if match := re.search(r"Which nodes are parents of node (\S+)\?", text):
        return {source for source, target in edges if target == match[1]}
    steps, start = re.search(r"exactly (\d+) steps? away from node (\S+)\?", text).groups()
    far = {node: 10**9 for edge in edges for node in edge} | {start: 0}
    changed = True
    while changed:
        changed = False
        for source, target in edges:
            if far[source] + 1 < far[target]:
                far[target] = far[source] + 1
                changed = True
    return {node for node, distance in far.items() if distance == int(steps)}


def walks(text):
    """What ends a walk of so many edges, shortest or not."""
    edges = EDGE.findall(text)
    steps, start = re.search(r"exactly (\d+) steps? away from node (\S+)\?", text).groups()
    ends = {start}
    for _ in range(int(steps)):
        ends = {target for source, target in edges if source in ends}
    return ends


@given(
    operation=st.sampled_from(["frontier", "parents"]),
    length=st.integers(700, 3000),
    steps=st.integers(1, 5),
    width=st.integers(1, 12),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_search_of_the_text_finds_the_answer(operation, length, steps, width, seed):
    renderer = FakeRenderer()
    more = {"steps": (steps,)} if operation == "frontier" else {}
    task = cell(operation, length, width=width, seed=seed, **more)
    try:
        sample = task.sample(seed % 100, renderer)
    except EvalkitError as error:
        assert str(error).startswith(f"graphwalk_{operation}@{length}: too short for this task")
        return
    example, graph = parts(sample)
    assert brute_force(graph) == set(sample.references)
    assert 1 <= len(sample.references) <= width
    solved = re.search(r"^Final answer: \[(.+)\]$", example, re.MULTILINE)[1]
    assert brute_force(example) == set(solved.split(", "))
    names = {node for edge in EDGE.findall(example) for node in edge}
    assert names.isdisjoint(node for edge in EDGE.findall(graph) for node in edge)
    assert sample.meta["edges"] == len(EDGE.findall(graph))
    assert length - 20 < used(sample, renderer) <= length


def test_the_answer_stays_when_the_graph_grows(renderer):
    task = cell(length=4096)
    draft = task._draft(5, renderer)
    answers = {tuple(sorted(brute_force(parts(draft.build(n))[1]))) for n in (0, 1, 50, 400, 3000)}
    assert answers == {draft.build(0).references}


def test_counting_walks_is_not_enough(renderer):
    task = cell(length=1500, steps=(2, 3))
    graphs = [parts(task.sample(i, renderer))[1] for i in range(40)]
    assert sum(walks(graph) != brute_force(graph) for graph in graphs) > 15


def test_the_core_does_not_stand_out(renderer):
    """As many edges leave the asked node as any other."""
    task = cell(length=3000, steps=(2,))
    asked, around = [], []
    for index in range(60):
        sample = task.sample(index, renderer)
        start = re.search(r"away from node (\S+)\?", sample.meta["question"])[1]
        leaving = Counter(source for source, _ in EDGE.findall(parts(sample)[1]))
        asked.append(leaving[start])
        around += leaving.values()
    assert abs(sum(asked) / len(asked) - sum(around) / len(around)) < 0.3
    assert max(around) == max(asked) == 3


def test_a_prompt_by_hand(renderer):
    sample = cell("frontier", 900, steps=(1, 2)).sample(3, renderer)
    assert sample.text.startswith("A directed graph is given as a list of edges, one a line;")
    question = sample.text.rsplit("\n\n", 1)[1]
    node = re.search(r"from node ([0-9a-f]{6})\?", question)[1]
    assert question == (
        f"Question: Which nodes are exactly 2 steps away from node {node}? These are the nodes"
        f" whose shortest path from {node}, along the direction of the edges, has 2 edges."
    )
    assert f"Question: {sample.meta['question']}" == question
    assert sample.answer_prefix == " Final answer:"
    assert sample.references == tuple(sorted(sample.references))
    assert (sample.id, sample.task) == ("graphwalk_frontier@900/3", "graphwalk_frontier@900")
    assert (sample.metric, sample.max_new_tokens) == ("set_f1", 8 + 8 * 8)
    assert sample.meta["steps"] == 2
    assert sample.cluster == sample.id


def test_parents_have_children_too(renderer):
    sample = cell("parents").sample(0, renderer)
    node = re.search(r"parents of node (\S+)\?", sample.meta["question"])[1]
    assert any(source == node for source, _ in EDGE.findall(sample.text))
    assert sample.meta["steps"] is None


@pytest.mark.parametrize("operation", ["frontier", "parents"])
def test_the_budget_is_kept_and_one_edge_more_would_break_it(operation, renderer):
    task = cell(operation, 1200)
    for index in range(5):
        sample = task.sample(index, renderer)
        assert used(sample, renderer) <= 1200
        draft = task._draft(index, renderer)
        assert draft.build(sample.meta["units"]) == sample
        assert used(draft.build(sample.meta["units"] + 1), renderer) > 1200


def test_any_subset_in_any_order_and_process_gives_the_same_samples(renderer):
    every = [cell().sample(i, renderer) for i in range(4)]
    fresh = cell()
    assert [fresh.sample(i, FakeRenderer()) for i in (3, 0)] == [every[3], every[0]]
    assert len({sample.text for sample in every}) == 4
    code = (
        "from pathlib import Path\n"
        "from evalkit.tasks.graphwalk import GraphWalkConfig, build\n"
        "from tests.tasks.fakes import FakeRenderer, digest\n"
        "task = build(GraphWalkConfig(lengths=(1024,)), Path())[0]\n"
        "print(*(digest(task.sample(i, FakeRenderer())) for i in (2, 0)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4321"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [digest(every[2]), digest(every[0])], done.stderr


def test_seed_and_length_change_the_sample(renderer):
    base = cell().sample(0, renderer)
    assert cell(seed=43).sample(0, renderer).text != base.text
    assert cell(length=1025).sample(0, renderer).references != base.references


def test_a_long_prompt_is_rendered_a_few_times_only(renderer):
    task = cell(length=20_000)
    task.sample(0, renderer)
    renderer.calls = 0
    for index in range(1, 5):
        assert 20_000 * 0.99 < used(task.sample(index, renderer), renderer) <= 20_000
    assert renderer.calls <= 4 * 4


def test_lengths_in_characters_need_no_tokenizer():
    class Blind:
        tokenizer = None

        def render(self, sample):
            raise AssertionError("asked for tokens")

        count = render

    task = cell(length=32_000, unit="characters")
    assert task.name == "graphwalk_frontier@32000chars"
    sample = task.sample(0, Blind())
    assert 32_000 - 30 < len(sample.text) + len(sample.answer_prefix) <= 32_000


def test_the_longest_answer_fits_its_budget():
    for more in ({}, {"digits": 16}, {"width": 20}):
        task = cell(length=4000, **more)
        config = task.config
        answer = " [" + ", ".join(["f" * config.digits] * config.width) + "]"
        assert len(answer) <= task.max_new_tokens
        assert len(FakeTokenizer().encode(answer)) <= task.max_new_tokens


def test_without_the_prefix_the_model_may_write_first(renderer):
    task = cell("parents", 4096, direct=False, metric="set_exact")
    sample = task.sample(0, renderer)
    assert sample.answer_prefix == ""
    assert sample.max_new_tokens == 72 + 2048
    assert used(sample, renderer) <= 4096
    listed = ", ".join(sample.references)
    answer = f"I look for edges into it.\nMaybe [x].\n**Final answer:** [{listed}]"
    assert score(sample.metric, answer, sample.references) == 1
    assert cell("parents", 4096, max_new_tokens=7).sample(0, renderer).max_new_tokens == 7


def test_small_vocabularies_bring_their_own_names(tmp_path, renderer):
    names = [f"{a}{b}" for a in ("red", "big", "old", "wet", "shy") for b in "abcdefghijklmnop"]
    (tmp_path / "nodes.txt").write_text("\n".join(names), encoding="utf-8")
    task = cell(length=600, base_dir=tmp_path, nodes="nodes.txt", width=3)
    for index in range(10):
        sample = task.sample(index, renderer)
        assert {n for edge in EDGE.findall(parts(sample)[1]) for n in edge} <= set(names)
        assert brute_force(parts(sample)[1]) == set(sample.references)
    with pytest.raises(EvalkitError, match=r"^graphwalk_frontier@4000: 80 names are too few"):
        cell(length=4000, base_dir=tmp_path, nodes="nodes.txt").sample(0, renderer)
    with pytest.raises(EvalkitError, match="'a b' is not a name of a node"):
        cell(nodes=("a b", "c"))


@pytest.mark.parametrize("operation", ["frontier", "parents"])
@pytest.mark.parametrize("length", [1, 100, 300])
def test_too_short_a_length_fails_at_once_by_name(operation, length, renderer):
    with pytest.raises(EvalkitError, match=rf"^graphwalk_{operation}@{length}: too short for this"):
        cell(operation, length).sample(0, renderer)
    with pytest.raises(EvalkitError, match="no sample 100 among 100"):
        cell(operation, length).sample(100, renderer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"operations": []}, "operations"),
        ({"operations": ["parents", "parents"]}, "twice"),
        ({"operations": ["parents"], "steps": [2]}, "frontier only"),
        ({"steps": []}, "steps"),
        ({"steps": [0]}, "steps"),
        ({"digits": 2}, "digits"),
        ({"metric": "f1"}, "metric"),
        ({"name": "a@b"}, "name"),
        ({"operation": "parents"}, "did you mean operations?"),
    ],
)
def test_recipe_mistakes_are_named(change, says):
    with pytest.raises(EvalkitError) as error:
        parse({"kind": "graphwalk", "lengths": [512], **change}, GraphWalkConfig, "recipe.toml")
    assert says in str(error.value)
