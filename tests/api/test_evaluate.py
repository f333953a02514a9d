"""`evaluate()`: the same run as the command's, with a path or with a model that is loaded."""

import sys

import pytest

import evalkit
from evalkit.api import Comparison
from evalkit.core.errors import EvalkitError
from evalkit.run.store import RunStore
from tests.command import evalkit as command

TASKS, ARMS = ["needle@256"], ["1/4", "1/2+k1"]
ORACLE = {"kind": "oracle", "corrupt": {"1/4": 1.0}}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory, checkpoint):
    out = tmp_path_factory.mktemp("oracle")
    return evalkit.evaluate(
        checkpoint, tasks=TASKS, arms=ARMS, samples=40, engine=ORACLE, out=out / "<b>run</b>"
    )


def test_verdicts_rows_and_table(oracle):
    assert isinstance(oracle, Comparison)
    assert oracle.verdicts == {
        "baseline": "baseline",
        "baseline again (A/A)": "repeat",
        "1/4": "worse",
        "1/2+k1": "undecided",
    }
    assert {row.task for row in oracle.rows} == {"macro", "needle@256"}
    lines = oracle.table().splitlines()
    assert lines[0].startswith("needle@256 of needle@256; against baseline, margin 0.01")
    (row,) = [line for line in lines if line.startswith("1/4") and "worse" in line]
    assert "0.000" in row
    assert repr(oracle) == oracle.table()


def test_a_notebook_shows_tables_and_no_markup_of_names(oracle):
    page = oracle._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 2
    assert "<td>worse</td>" in page
    assert "<b>" not in page
    assert "&lt;b&gt;run" in page


def test_to_pandas_has_a_line_for_every_row(oracle, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = oracle.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns[:4]) == ["arm", "task", "metric", "n"]
    assert frame.set_index(["arm", "task"]).loc[("1/4", "macro"), "score"] == 0.0
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EvalkitError, match="pip install pandas"):
        oracle.to_pandas()


def test_the_command_goes_on_where_python_began(oracle, checkpoint):
    store = RunStore(oracle.path)
    before = {p: p.read_bytes() for p in store.path.glob("arms/*/samples.jsonl")}
    assert command("run", store.recipe) == 0
    assert {p: p.read_bytes() for p in before} == before
    again = evalkit.evaluate(
        checkpoint, tasks=TASKS, arms=ARMS, samples=40, engine=ORACLE, out=store.path
    )
    assert again.verdicts == oracle.verdicts
    assert {p: p.read_bytes() for p in before} == before


def test_a_loaded_model_answers_as_its_checkpoint_does_and_is_left_as_it_was(tmp_path, checkpoint):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32").train()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options = {"tasks": TASKS, "arms": ["1/4"], "samples": 5}
    small = "engine.dtype=float32"
    evalkit.evaluate(checkpoint, out=tmp_path / "path", settings=[small], **options)
    live = evalkit.evaluate(model, tokenizer=tokenizer, out=tmp_path / "live", **options)
    assert set(live.verdicts) == {"baseline", "baseline again (A/A)", "1/4"}
    for arm in live.verdicts:
        ours, theirs = (RunStore(tmp_path / n).read_samples(arm) for n in ("live", "path"))
        assert {i: r.completion for i, r in ours.items()} == {
            i: r.completion for i, r in theirs.items()
        }
    assert model.training
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert RunStore(tmp_path / "live").read_run().arm("1/4").engagement == "engaged"
    with torch.no_grad():  # other weights are another model
        next(model.parameters()).add_(1.0)
    with pytest.raises(EvalkitError, match="weights_sha256 changed since this run began"):
        evalkit.evaluate(model, tokenizer=tokenizer, out=tmp_path / "live", **options)
    assert model.training


def test_what_does_not_go_together_is_said(checkpoint):
    with pytest.raises(EvalkitError, match="a tokenizer goes with a model that is loaded"):
        evalkit.evaluate(checkpoint, tasks=TASKS, tokenizer=object())
    with pytest.raises(EvalkitError, match="no task: write one"):
        evalkit.evaluate(checkpoint, tasks=[])
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        evalkit.evalute  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    import subprocess

    code = "import sys, evalkit; print(sorted({'torch', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
