"""What is refused before a server starts, and what a rank says; no vLLM is needed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.engagement.server_logs import read_log
from evalkit.vllm_plugin import plugin, releases
from evalkit.vllm_plugin.report import engaged
from evalkit.vllm_plugin.request import check_settings, fitted, model_type_of, parsed

V4 = {
    "model_type": "deepseek_v4",
    "num_hidden_layers": 8,
    "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 0],
    "index_topk": 512,
}
V32 = {"model_type": "deepseek_v32", "num_hidden_layers": 4, "index_topk": 8}
GLM52 = {
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 4,
    "index_topk": 8,
    "indexer_types": ["full", "shared", "full", "shared"],
}


def test_without_the_variable_nothing_happens(monkeypatch):
    monkeypatch.delenv("EVALKIT_SCHEDULE", raising=False)
    monkeypatch.setitem(sys.modules, "vllm", None)  # an import would fail
    plugin.register()
    monkeypatch.setenv("EVALKIT_SCHEDULE", " ")
    plugin.register()


def test_the_package_imports_neither_torch_nor_transformers():
    code = (
        "import sys; import evalkit.vllm_plugin.plugin, evalkit.vllm_plugin.engine;"
        " print(*{'torch', 'transformers', 'pydantic', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_what_fails_ends_the_process_with_one_line(monkeypatch):
    monkeypatch.setenv("EVALKIT_SCHEDULE", "FSFS")
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(SystemExit) as stopped:
        plugin.register()
    assert str(stopped.value).startswith("evalkit: ")
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SFFF", "the first layer must be full"),
        ("FFXF", "use F or S"),
        ("FFFF lag=-1", "it must be 0 or more"),
        ("FFFF lag=x", "cannot read the numbers"),
        ("FFFF phase=sometimes", "use decode or all"),
        ("FFFF leg=1", "cannot read 'leg=1'"),
        ("FSFF sources=0,1,1,2", "reads layer 1, which does not run its indexer"),
        ("FSFF sources=0,0,3,2", "which comes after it"),
        ("FSFF sources=0,0,2", "3 sources for 4"),
        ("FSFF lag=1 sources=0,0,0,2", "not both"),
    ],
)
def test_malformed_schedules(text, says):
    with pytest.raises(ScheduleError, match=says) as refused:
        parsed(text)
    assert str(refused.value).startswith("EVALKIT_SCHEDULE: ")


def test_sources_are_sigma_itself():
    assert parsed("FFFF sources=0,0,1,2") == ReuseSchedule.from_pattern("FFFF", 1)
    assert parsed("FFSF sources=0,0,0,1 phase=all").sources("prefill") == (0, 0, 0, 1)
    named = parsed("FSF sources=0,0,0 layers=2,4,6")
    assert ReuseSchedule.parse(str(named)) == named


def test_letters_count_the_compressed_sparse_layers():
    schedule = fitted(parsed("FSF lag=1"), V4)
    assert schedule.layer_ids == (2, 4, 6)
    assert schedule == fitted(parsed("FSF lag=1 layers=2,4,6"), V4)
    assert schedule.source == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "config", "says"),
    [
        ("FSFS", V4, "the model has its 3 indexers in layers 2,4,6"),
        ("FSF layers=2,4,5", V4, "in layers 2,4,6"),
        ("FFF", V32, "3 letters over layers 0,1,2"),
        ("FFFF", GLM52, "layer 1 has no indexer in this checkpoint"),
        ("FFSF lag=0,1,0,0", V32, "layer 2 shares the group of layer 1"),
    ],
)
def test_schedules_that_do_not_fit_the_model(text, config, says):
    with pytest.raises(ScheduleError, match=says):
        fitted(parsed(text), config)


def test_other_models_are_refused_by_name():
    assert model_type_of(["DeepseekV32ForCausalLM"]) == "deepseek_v32"
    with pytest.raises(ScheduleError, match="LlamaForCausalLM: the plugin is for DeepseekV4For"):
        model_type_of(["LlamaForCausalLM"])


def settings(**changed):
    parallel = {"use_ubatching": False, "prefill_context_parallel_size": 1}
    parallel |= {"decode_context_parallel_size": 1}
    hisparse = changed.pop("hisparse_config", None)
    return SimpleNamespace(
        parallel_config=SimpleNamespace(**(parallel | changed)),
        attention_config=SimpleNamespace(hisparse_config=hisparse),
    )


def test_settings_that_the_plugin_does_not_go_with():
    check_settings(settings())
    for changed, says in (
        ({"use_ubatching": True}, "two batches at once"),
        ({"decode_context_parallel_size": 2}, "context parallelism"),
        ({"prefill_context_parallel_size": 2}, "context parallelism"),
        ({"hisparse_config": object()}, "host-backed cache"),
    ):
        with pytest.raises(ScheduleError, match=says):
            check_settings(settings(**changed))


def test_unknown_and_changed_releases(tmp_path, monkeypatch):
    with pytest.raises(ScheduleError, match=r"vLLM 0\.1\.0 is not known .* \(known: 0\.32\.0, "):
        releases.check("0.1.0", tmp_path)
    source = "class Layer:\n    def forward(self):\n        return 1\n"
    (tmp_path / "layer.py").write_text(source)
    name = "layer.py:Layer.forward"
    table = {"9.9.0": {name: releases.fingerprint(tmp_path, name)}}
    monkeypatch.setattr(releases, "known", lambda: table)
    releases.check("9.9.0+cpu", tmp_path)
    (tmp_path / "layer.py").write_text("# elsewhere\n" + source)
    releases.check("9.9.0", tmp_path)
    (tmp_path / "layer.py").write_text(source.replace("return 1", "return 2"))
    with pytest.raises(ScheduleError, match=r"layer\.py:Layer\.forward differs"):
        releases.check("9.9.0", tmp_path)
    assert releases.fingerprint(tmp_path, "layer.py:Layer.gone") == ""
    assert releases.fingerprint(tmp_path, "gone.py:Layer") == ""


def test_every_fingerprint_is_kept_for_every_release():
    tables = [set(names) for names in releases.known().values()]
    assert tables
    assert all(names == tables[0] for names in tables)


def test_the_line_of_a_rank_is_read_by_the_check():
    schedule = ReuseSchedule.parse("FSF lag=1 layers=2,4,6")
    lines = [engaged(schedule, (2, 4, 6), rank=r, version="0.32.0").line for r in (0, 1)]
    assert lines[0] == (
        "evalkit schedule in force [FSF lag=1 layers=2,4,6] rank 0, vLLM 0.32.0, pattern FSF,"
        " decode reads 2,2,2, prefill reads 2,2,6, layers 2,4,6"
    )
    assert read_log(lines).in_force == {str(schedule): {0, 1}}
