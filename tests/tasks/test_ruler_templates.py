"""The official sources are data: parsed, never executed, refused in another form."""

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.tasks.ruler.templates import parse


@pytest.mark.parametrize(
    ("constants", "suite", "says"),
    [
        ("TASKS = dict(a=1)", "a: {}", "no literal"),
        ("import os\nX = 1", "a: {}", "no dictionary TASKS"),
        ("TASKS = {", "a: {}", "no literal"),
        ("TASKS = {}", "a: {task: b, args: {}}", "unknown form"),
        ("TASKS = {}", "[", "unknown form"),
        ("TASKS = {}", "- a", "unknown form"),
    ],
)
def test_another_form_of_the_sources_is_refused(constants, suite, says):
    with pytest.raises(EvalkitError, match=says):
        parse(constants, suite)


def test_the_wording_is_parsed_and_never_executed(tmp_path):
    trap = tmp_path / "ran"
    constants = (
        f"open({str(trap)!r}, 'w')\n"
        "TASKS = {'b': {'template': '{context}', 'answer_prefix': '', 'tokens_to_generate': 3}}"
    )
    found = parse(constants, "a: {task: b, args: {x: 1}}")
    assert (found["a"].template, found["a"].args) == ("{context}", {"x": 1})
    assert not trap.exists()
