"""Several processes of `accelerate launch`: the answers of one, and one writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from evalkit.run.store import RunStore
from tests.engagement.test_check import evalkit
from tests.servers.real import free_port

RECIPE = """
model = "{model}"
[engine]
kind = "hf"
dtype = "float32"
max_batch = 2
[[tasks]]
kind = "needle"
lengths = [160, 224]
depths = [0, 100]
repeats = 3
haystacks = 2
value_digits = 4
key_adjectives = ["brave", "calm", "eager"]
key_nouns = ["apple", "arrow", "badge"]
max_new_tokens = 5
[[arms]]
name = "all full"
[[arms]]
name = "1/2"
retention = "1/2"
"""


def launch(recipe, out, processes=2):
    """The command under `accelerate launch` on the CPU."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    command += ["--num_machines", "1"]
    command += ["--num_processes", str(processes), "--main_process_port", str(free_port())]
    command += ["--mixed_precision", "no", "--dynamo_backend", "no", "-m", "evalkit.cli", "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [*command, str(recipe), "--out", str(out)],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


def records(out):
    store = RunStore(out)
    keep = ("completion", "finish_reason", "completion_tokens", "prompt_sha256")
    return {
        (arm, i): tuple(getattr(row, key) for key in keep)
        for arm in ("all full", "1/2")
        for i, row in store.read_samples(arm).items()
    }


@pytest.mark.slow
def test_two_processes_answer_as_one(checkpoint, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(model=checkpoint), encoding="utf-8")
    assert evalkit("run", path, "--out", tmp_path / "one") == 0
    two = tmp_path / "two"
    done = launch(path, two)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("records:") == 1  # one of them prints
    assert records(two) == records(tmp_path / "one")
    assert len(records(two)) == 24
    lines = (RunStore(two).arm_dir("1/2") / "samples.jsonl").read_text().splitlines()
    assert len(lines) == 12  # one of them writes
    arms = json.loads((two / "run.json").read_text())["arms"]
    one = json.loads((tmp_path / "one" / "run.json").read_text())["arms"]
    for ours, theirs in zip(arms, one, strict=True):
        assert ours["engagement"] == theirs["engagement"]  # calls of both processes
    # Half of the answers gone: taken up again with two processes, and again with one.
    samples = RunStore(two).arm_dir("1/2") / "samples.jsonl"
    samples.write_text("".join(line + "\n" for line in lines[:5]))
    done = launch(path, two)
    assert done.returncode == 0, done.stderr[-3000:]
    assert records(two) == records(tmp_path / "one")


def test_a_finished_run_keeps_its_evidence(checkpoint, tmp_path):
    """Nothing is generated the second time: what the first run proved stays."""
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(model=checkpoint), encoding="utf-8")
    small = ["--limit", "2", "--set", "tasks.needle.lengths=[160]"]
    for _ in range(2):
        assert evalkit("run", path, "--out", tmp_path / "one", *small) == 0
        arms = RunStore(tmp_path / "one").read_run().arms
        assert [arm.engagement for arm in arms] == ["engaged", "engaged"]
        assert arms[1].stored["engagement"]["indexer_calls"][:2] != [0, 0]


def test_a_device_map_is_for_one_process(checkpoint, monkeypatch):
    from evalkit.core.errors import EvalkitError
    from evalkit.engines.hf import distributed
    from evalkit.engines.hf.config import HfConfig
    from evalkit.engines.hf.engine import HfEngine

    monkeypatch.setattr(distributed, "processes", lambda: 2)
    monkeypatch.setattr(distributed, "send_command", lambda _: None)
    monkeypatch.setattr(distributed, "device", lambda: "cpu")
    with pytest.raises(EvalkitError, match="launch one process"):
        HfEngine(HfConfig(device_map="auto")).load(str(checkpoint))


def test_a_device_map_changes_no_answer(checkpoint):
    from evalkit.config.arm import ArmConfig
    from evalkit.core.types import Sample
    from evalkit.engines.hf.config import HfConfig
    from evalkit.engines.hf.engine import HfEngine
    from evalkit.prompts.renderer import ChatRenderer
    from evalkit.prompts.tokenizers import load_tokenizer

    render = ChatRenderer(load_tokenizer(str(checkpoint))).render
    prompt = render(Sample("s/0", "s", "The calm badger. " * 9, ("x",), "none", 5))
    texts = []
    for device_map in (None, "auto"):
        engine = HfEngine(HfConfig(device_map=device_map, dtype="float32"))
        engine.load(str(checkpoint))
        texts += [
            b[0].text for b in engine.answer(ArmConfig(name="a"), engine.native(), [prompt], ())
        ]
    assert texts[0] == texts[1] != ""
