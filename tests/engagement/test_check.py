"""Engagement: reports, logs, returned selections, probes, and the verdict before a server arm."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from evalkit.config.arm import ArmConfig
from evalkit.config.server import OpenAIServerConfig, ServerConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.files import write_object
from evalkit.dsa import ReuseSchedule
from evalkit.engagement import server_info
from evalkit.engagement.behavioral_probe import probe_prompts
from evalkit.engagement.check import check_arm
from evalkit.engagement.evidence import CheckedArm
from evalkit.engagement.returned_topk import decode, prove
from evalkit.engagement.server_info import JsonClient, read_server
from evalkit.engines.openai.api_keys import Key
from evalkit.engines.openai.engine import OpenAIServerEngine
from tests.checkpoints import paper
from tests.command import evalkit
from tests.servers.fake import FakeServer, rule
from tests.servers.http import Served

LOGS = Path(__file__).parent / "logs"
C4 = tuple(range(2, 43, 2))
HALF = ReuseSchedule.uniform(8, "1/2")


def sglang(overrides, model="model", **more):
    """What SGLang's /server_info has of it."""
    args = {"model_path": f"/weights/{model}", "tp_size": 8, "version": "0.5.19", **more}
    return {"/server_info?config_format=json": args | {"json_model_override_args": overrides}}


def loaded(model, url, **options):
    options = {"probe_prompts": 0, "backoff": 0.01, "retries": 3} | options
    engine = OpenAIServerEngine(OpenAIServerConfig(urls=(url,), **options))
    engine.load(str(model))
    return engine


def check(model, reports, arm, entries=(), **options):
    with FakeServer(reports=reports) as server:
        engine = loaded(model, server.url, **options)
        return check_arm(engine, arm, arm.schedule(engine.native()), entries)


def arm(name="arm", **options):
    return ArmConfig(name=name, **options)


# -- reports ------------------------------------------------------------------------------------


def test_who_is_there():
    key = Key("")
    with FakeServer(reports=sglang('{"index_topk_freq": 4}')) as server:
        report = read_server(server.url, key)
        assert (report.kind, report.version) == ("sglang", "0.5.19")
        assert report.overrides == {"index_topk_freq": 4}
        assert report.settings == {"tp_size": 8}
        assert report.models == ("tiny", "/weights/model")
    old = {"/get_server_info": sglang("{}")["/server_info?config_format=json"]}
    with FakeServer(reports=old) as server:
        assert read_server(server.url, key).overrides == {}
    config = {"model_config": {"model": "zai-org/GLM-5", "hf_overrides": {"index_topk_freq": 4}}}
    config["parallel_config"] = {"tensor_parallel_size": 8}
    vllm = {"/server_info?config_format=json": {"vllm_config": config}}
    with FakeServer(reports=vllm | {"/version": {"version": "0.28.0"}}) as server:
        report = read_server(server.url + "/v1", key)
        assert (report.kind, report.version) == ("vllm", "0.28.0")
        assert report.overrides == {"index_topk_freq": 4}
        assert report.settings == {"tensor_parallel_size": 8, "speculative_method": None}
        assert "zai-org/GLM-5" in report.models
    with FakeServer(reports={"/version": {"version": "0.28.0"}}) as server:  # not in dev mode
        report = read_server(server.url, key)
        assert (report.kind, report.overrides) == ("vllm", None)
    served = {"data": [{"id": "m", "owned_by": "local", "status": {"value": "loaded"}}]}
    with FakeServer(reports={"/v1/models": served}) as server:
        assert read_server(server.url, key).kind == "transformers"
    with FakeServer() as server:
        assert read_server(server.url, key).kind == "unknown"
    with pytest.raises(EvalkitError, match="no answer"):
        read_server(server.url, key)


# -- overrides ----------------------------------------------------------------------------------


def test_matching_settings_alone_are_not_a_proof(paper_checkpoint):
    result = check(
        paper_checkpoint, sglang('{"index_topk_pattern": "FSFSFSFS"}'), arm(pattern="FSFSFSFS")
    )
    assert result.verdict == "unknown"
    assert result.reason.startswith("asked for, not proved")
    assert "its settings give full layers 0, 2, 4, 6" in result.findings[1].text
    assert result.launch.startswith("python -m sglang.launch_server --model-path")
    assert "FSFSFSFS" in result.launch


def test_other_layers_are_not_engaged_even_as_many(paper_checkpoint):
    # Frequency 2 keeps {0, 1, 3, 5, 7} for SGLang; 4 of 8 with another rule.
    result = check(
        paper_checkpoint, sglang('{"index_topk_pattern": "FFFFSSSS"}'), arm(pattern="FSFSFSFS")
    )
    assert result.verdict == "not engaged"
    assert "runs full layers 0, 1, 2, 3, the arm wants 0, 2, 4, 6 (as many" in result.reason
    result = check(paper_checkpoint, sglang("{}"), arm(pattern="FSFSFSFS"))
    assert result.verdict == "not engaged"
    result = check(
        paper_checkpoint, sglang('{"index_topk_pattern": "SFSF"}'), arm(pattern="FSFSFSFS")
    )
    assert "the overrides cannot run" in result.reason


@pytest.mark.parametrize("name", ["index_topk_freq", "indexer_types"])
def test_a_server_with_settings_inside_text_config_is_not_off(paper_checkpoint, name):
    nested = json.dumps({"text_config": {name: 4}})
    result = check(paper_checkpoint, sglang(nested), arm())
    assert result.verdict == "not engaged"
    assert f"the arm wants reuse off, the server was started with {name} = 4" in result.reason


@pytest.mark.parametrize("odd", ["\\ud800", "NaN", "-Infinity", "1e999", "[" * 5000])
def test_what_no_record_can_hold_is_recorded_all_the_same(paper_checkpoint, tmp_path, odd):
    value = f'"{odd}"' if odd.startswith("\\") else odd
    told = f'{{"version": "0.5.23", "tp_size": {value}, "json_model_override_args": "{{}}"}}'
    listed = {"data": [{"id": "model"}]}
    reports = {"/v1/models": listed, "/server_info?config_format=json": told}
    result = check(paper_checkpoint, reports, arm())
    write_object(tmp_path / "run.json", {"check": result.record()})
    read = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert read["check"]["verdict"] in ("engaged", "unknown")


@pytest.mark.parametrize("model_config", [{}, [1], "x", {"hf_overrides": "<function>"}])
def test_vllm_that_does_not_tell_its_overrides_is_not_off(model_config):
    told = {"/server_info?config_format=json": {"vllm_config": {"model_config": model_config}}}
    with FakeServer(reports=told) as server:
        assert read_server(server.url, Key("")).overrides is None


@pytest.mark.parametrize(
    "url",
    ["http://h:abc", "http://h:99999", "http://\u00e9..com", f"http://{'a' * 70}.b", "http://[::1"],
)
def test_addresses_that_no_client_takes_are_refused(url):
    with pytest.raises(ValidationError, match="is not an address: write http://host:port"):
        ServerConfig(urls=[url])
    assert ServerConfig(urls=["http://[::1]:1", "http://caf\u00e9.fr/v1?key=x", "http://a_b:80"])


def test_a_name_longer_than_any_path_is_no_checkpoint(paper_checkpoint):
    listed = {"data": [{"id": "x" * 5000, "status": {"value": "loaded"}}, {"id": "a\0b"}]}
    assert check(paper_checkpoint, {"/v1/models": listed}, arm()).verdict == "not engaged"


def test_a_start_line_that_cannot_be_is_a_comment(paper_checkpoint):
    refused = arm(lag=1, server={"engine": "sglang"})
    result = check(paper_checkpoint, sglang("{}"), refused)
    assert result.launch.startswith("# sglang-0.5.19 cannot express a lag")
    assert result.start_hint == ""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"environment": {"A B": "1"}}, "'A B' is no name of a variable"),
        ({"environment": {"$(reboot)": "1"}}, "is no name of a variable"),
        ({"flags": ["--tp 8"]}, "write --tp and its value apart"),
    ],
)
def test_start_lines_hold_no_words_that_a_shell_would_cut_otherwise(settings, says):
    with pytest.raises(ValidationError, match=re.escape(says)):
        ServerConfig(**settings)
    assert ServerConfig(environment={"A_B": "$(x)"}, flags=["--header=X: y z", "a b"])


def test_off_is_off_and_on_is_not(paper_checkpoint):
    assert check(paper_checkpoint, sglang("{}"), arm()).verdict == "engaged"
    result = check(paper_checkpoint, sglang('{"index_topk_freq": 1}'), arm())
    assert result.verdict == "not engaged"
    assert (
        "the arm wants reuse off, the server was started with index_topk_freq = 1" in result.reason
    )
    on = arm(server={"enabled": True, "engine": "vllm"})
    result = check(paper_checkpoint, sglang('{"use_index_cache": true, "index_topk_freq": 1}'), on)
    assert result.verdict == "unknown"
    result = check(paper_checkpoint, sglang("{}"), on)
    assert "reuse is off, the arm wants it on" in result.reason


def test_another_model_is_not_engaged_unless_the_arm_names_it(paper_checkpoint):
    result = check(paper_checkpoint, sglang("{}", model="other"), arm())
    assert result.verdict == "not engaged"
    assert "serves tiny, /weights/other, the arm wants" in result.reason
    named = arm(server={"served_model": "tiny"})
    assert check(paper_checkpoint, sglang("{}", model="other"), named).verdict == "engaged"
    # The engine's name counts for arms that give none, and theirs goes before.
    other = sglang("{}", model="other")
    result = check(paper_checkpoint, other, arm(), served_model="tiny")
    assert result.verdict == "engaged"
    assert "serves tiny, as the recipe names it" in result.findings[0].text
    wrong = arm(server={"served_model": "big"})
    assert check(paper_checkpoint, other, wrong, served_model="tiny").verdict == "not engaged"


def test_a_name_given_to_the_server_runs_from_the_recipe(paper_checkpoint, tmp_path):
    """--served-model-name: the server knows the checkpoint by a name of its own, and no path."""
    recipe = tmp_path / "recipe.toml"
    with FakeServer(model="production") as server:
        for line, code in (('served_model = "production"', 0), ("", 2)):
            recipe.write_text(
                f'model = "{paper_checkpoint}"\n[engine]\nkind = "openai_server"\n'
                f'urls = ["{server.url}"]\nprobe_prompts = 0\n{line}\n'
                '[[tasks]]\nkind = "needle"\nlengths = [256]\ndepths = [50]\nrepeats = 2\n'
                'haystacks = 2\nvalue_digits = 4\nkey_adjectives = ["brave", "calm"]\n'
                'key_nouns = ["apple", "arrow"]\n[[arms]]\nname = "off"\n',
                encoding="utf-8",
            )
            assert evalkit("run", recipe, "--out", tmp_path / f"run{code}") == code


def test_glm52_native_is_off_for_that_checkpoint(tmp_path):
    native = "FFF" + "SSSF" * 18 + "SSS"
    types = ["full" if c == "F" else "shared" for c in native]
    model = paper(
        tmp_path / "glm-5.2",
        model_type="glm_moe_dsa",
        num_hidden_layers=78,
        indexer_types=types,
        index_topk_freq=4,
        index_skip_topk_offset=3,
    )
    assert check(model, sglang("{}", model="glm-5.2"), arm()).verdict == "engaged"
    # A frequency alone keeps the checkpoint's offset 3: layers 0, 1, 2, 4, 6 … and not offset 2's.
    sparser = native[:6] + "S" + native[7:]
    reports = sglang(json.dumps({"index_topk_pattern": sparser}), model="glm-5.2")
    result = check(model, reports, arm(pattern=sparser))
    assert [f.holds for f in result.findings] == [True, True]
    result = check(model, sglang('{"index_topk_freq": 2}', model="glm-5.2"), arm(pattern=sparser))
    assert result.verdict == "not engaged"


# -- logs and custom builds ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def v4(tmp_path_factory):
    ratios = [0, 0] + [4, 128] * 20 + [4, 0]  # the last entry is an MTP layer
    directory = tmp_path_factory.mktemp("v4") / "deepseek-v4-flash"
    types = {0: "sliding_attention", 4: "compressed_sparse_attention"}
    named = [types.get(r, "heavily_compressed_attention") for r in ratios[:43]]
    return paper(
        directory, model_type="deepseek_v4", num_hidden_layers=43, compress_ratios=ratios,
        layer_types=named, index_topk=8,
    )  # fmt: skip


def v4_arm(log, engine_name="ascend-sglang-v4", letters="FS" * 10 + "F"):
    return arm(pattern=letters, server={"engine": engine_name, "log": str(LOGS / log)})


def test_the_log_of_the_first_seed_proves_its_arm(v4):
    overrides = '{"use_index_cache": true, "index_topk_freq": 2}'
    reports = sglang(overrides, model="deepseek-v4-flash")
    result = check(v4, reports, v4_arm("ascend_v4_freq2.log"))
    assert result.verdict == "engaged"
    assert "reusing layers 4, 8, 12, 16, 20, 24, 28, 32, 36, 40" in result.reason


def test_a_log_with_other_layers_refutes_it(v4):
    overrides = '{"use_index_cache": true, "index_topk_freq": 2}'
    reports = sglang(overrides, model="deepseek-v4-flash")
    result = check(v4, reports, v4_arm("ascend_v4_other_rule.log"))
    assert result.verdict == "not engaged"
    assert "reusing layers 6, 10" in result.reason
    # The same settings on another engine keep other layers: the settings alone show it.
    result = check(v4, reports, v4_arm("ascend_v4_other_rule.log", "vllm-ascend-v4"))
    assert result.verdict == "not engaged"
    assert "(as many, and not the same)" in result.reason


def test_settings_that_v4_ignores_are_not_engaged(v4):
    overrides = '{"use_index_cache": true, "index_topk_freq": 2}'
    reports = sglang(overrides, model="deepseek-v4-flash")
    result = check(v4, reports, arm(pattern="FS" * 10 + "F", server={"engine": "sglang-v4"}))
    assert result.verdict == "not engaged"


# -- our plugin in vLLM -------------------------------------------------------------------------


def plugged(note=None, ranks=()):
    """A vLLM of the plugin's, as its development API tells: one schedule per rank."""
    config = {"model_config": {"model": "/weights/model", "hf_overrides": {}}}
    config["additional_config"] = {} if note is None else {"evalkit_schedule": note}
    reports = {"/server_info?config_format=json": {"vllm_config": config}}
    reports["/version"] = {"version": "0.32.0"}
    if ranks:
        said = [{"rank": i, "schedule": text} for i, text in enumerate(ranks)]
        reports["/collective_rpc"] = {"results": said}
    return reports


def lag(**more):
    server = {"engine": "vllm-plugin", **more}
    return arm(retention="1/2", lag=1, server=server)


LAG = "FSFSFSFS lag=1"


def test_every_rank_of_the_plugin_says_what_it_runs(paper_checkpoint):
    result = check(paper_checkpoint, plugged(LAG, [LAG] * 2), lag(ranks=2))
    assert result.verdict == "engaged"
    assert result.reason == f"our plugin runs {LAG} on 2 of 2 ranks"
    assert result.launch.startswith(f"EVALKIT_SCHEDULE='{LAG}' vllm serve ")
    result = check(paper_checkpoint, plugged(LAG, [LAG]), lag(ranks=2))
    assert result.verdict == "not engaged"
    result = check(paper_checkpoint, plugged(LAG, [LAG, "FSFSFSFS"]), lag(ranks=2))
    assert "our plugin runs FSFSFSFS, the arm wants FSFSFSFS lag=1" in result.reason


def test_the_same_layers_with_another_lag_are_not_engaged(paper_checkpoint):
    other = plugged("FSFSFSFS lag=2", ["FSFSFSFS lag=2"])
    result = check(paper_checkpoint, other, lag())
    assert result.verdict == "not engaged"
    assert "runs FSFSFSFS lag=2, the arm wants FSFSFSFS lag=1" in result.reason


def test_a_server_that_tells_no_rank_is_asked_for_not_proved(paper_checkpoint):
    result = check(paper_checkpoint, plugged(LAG), lag())
    assert result.verdict == "unknown"
    assert "start it with VLLM_SERVER_DEV_MODE=1, or name its log" in result.reason
    result = check(paper_checkpoint, plugged(), lag())
    assert result.verdict == "not engaged"


def test_the_log_of_the_plugin_is_a_proof_too(paper_checkpoint, tmp_path):
    log = tmp_path / "server.log"
    lines = [
        f"(Worker_TP{i}) INFO evalkit schedule in force [{LAG}] rank {i}, vLLM" for i in (0, 1)
    ]
    log.write_text("\n".join(lines))
    result = check(paper_checkpoint, plugged(LAG), lag(log=str(log), ranks=2))
    assert result.verdict == "engaged"
    off = arm(server={"engine": "vllm", "log": str(log)})
    result = check(paper_checkpoint, plugged(), off)
    assert result.verdict == "not engaged"
    assert "the arm wants no plugin" in result.reason


def test_off_is_not_a_server_with_the_plugin_on(paper_checkpoint):
    off = arm(server={"engine": "vllm"})
    assert check(paper_checkpoint, plugged(), off).verdict == "engaged"
    result = check(paper_checkpoint, plugged("FFFFFFFF", ["FFFFFFFF"]), off)
    assert result.verdict == "not engaged"
    assert "was started with evalkit_schedule = 'FFFFFFFF'" in result.reason
    on = arm(server={"engine": "vllm-plugin", "enabled": True})
    assert check(paper_checkpoint, plugged("FFFFFFFF", ["FFFFFFFF"]), on).verdict == "engaged"


def lagging(log=None, ranks=4, **more):
    server = {"engine": "custom", "environment": {"SGLANG_DSA_LAG": "1"}, "ranks": ranks}
    server |= {"flags": ["--dsa-overlap"], "markers": ["overlapped .* captured"]} | more
    if log is not None:
        server["log"] = str(LOGS / log)
    return arm("MLI k=1", lag=1, server=server)


def test_a_custom_build_is_proved_by_every_ranks_marker(paper_checkpoint):
    result = check(paper_checkpoint, sglang("{}"), lagging("lag_captured.log"))
    assert result.verdict == "engaged"
    assert "written by 4 of 4 ranks" in result.reason
    assert result.launch.startswith("SGLANG_DSA_LAG=1 python -m sglang.launch_server --model-path")
    assert result.launch.endswith("--dsa-overlap")
    result = check(paper_checkpoint, sglang("{}"), lagging("lag_captured.log", ranks=8))
    assert result.verdict == "not engaged"
    assert "4 of 8 ranks" in result.reason
    result = check(paper_checkpoint, sglang("{}"), lagging("lag_fallback.log", ranks=1))
    assert result.verdict == "not engaged"
    assert "a rank fell back" in result.reason
    result = check(paper_checkpoint, sglang("{}"), lagging())
    assert result.verdict == "unknown"
    assert "nothing proves a custom build" in result.reason


# -- returned selections ------------------------------------------------------------------------


def selections(schedule, tokens=40, topk=8, seed=0, *, seen=1):
    """Selections [tokens, layers, top-k] as a server under `schedule` would return them."""
    rng = np.random.default_rng(seed)
    out = np.full((tokens, len(schedule), topk), -1, dtype="<i4")
    for token in range(tokens):
        selected = {}
        for ordinal, source in enumerate(schedule.source):
            if schedule.computes[ordinal]:
                count = (token + 1) // seen
                chosen = rng.permutation(count)[:topk]
                selected[ordinal] = np.pad(chosen, (0, topk - len(chosen)), constant_values=-1)
            out[token, ordinal] = selected[source]
    return out


def meta(result, prompt_tokens):
    raw = base64.b64encode(result.astype("<i4").tobytes()).decode()
    new = result.shape[0] + 1 - prompt_tokens
    return {"indexer_topk": raw, "prompt_tokens": prompt_tokens, "completion_tokens": new}


def test_decoding_the_wire_format():
    result = selections(HALF)
    assert np.array_equal(decode(meta(result, 33), 8), result)
    assert decode({}, 8) is None
    assert decode({"indexer_topk": "§"}, 8) is None
    assert decode(meta(result, 33), 7) is None


def test_every_shared_layer_must_equal_its_source():
    good = prove(selections(HALF), HALF)
    assert good.holds
    assert good.rows == 32  # tokens 9 … 40: the first 8 select everything
    broken = selections(HALF)
    broken[-1, 3] = broken[-1, 3][::-1] + 1
    bad = prove(broken, HALF)
    assert (bad.holds, bad.differing) == (False, (3,))
    assert "shared layers 3 do not read" in bad.text
    everything = prove(selections(ReuseSchedule.uniform(8)), HALF)
    assert everything.differing == (1, 3, 5, 7)


def test_more_sharing_than_the_arm_has_is_seen():
    result = prove(selections(ReuseSchedule.uniform(8, "1/4")), HALF)
    assert (result.holds, result.copied) == (False, (2, 6))


def test_short_prompts_show_nothing_and_order_does_not_matter():
    assert prove(selections(HALF, tokens=8), HALF).holds is None
    shuffled = selections(HALF)
    shuffled[:, 1] = shuffled[:, 1][:, ::-1]
    result = prove(shuffled, HALF)
    assert result.holds
    assert "in another order" in result.text


def test_v4_counts_compressed_entries():
    schedule = ReuseSchedule.uniform(C4, "1/2")
    result = selections(schedule, tokens=60, topk=8, seen=4)
    assert prove(result, schedule, ratio=4).rows == 60 - 35  # 9 entries exist from token 36 on
    assert prove(result[:35], schedule, ratio=4).holds is None


@pytest.mark.parametrize(
    ("runs", "verdict"), [(HALF, "engaged"), (ReuseSchedule.uniform(8), "not engaged")]
)
def test_a_server_that_returns_selections(paper_checkpoint, runs, verdict):
    def generate(body):
        assert body["return_indexer_topk"] is True
        size = len(body["input_ids"])
        assert size > 8  # beyond index_topk
        return {"meta_info": meta(selections(runs, size + 7), size)}

    reports = sglang('{"index_topk_pattern": "FSFSFSFS"}', enable_return_indexer_topk=True)
    result = check(paper_checkpoint, reports | {"/generate": generate}, arm(retention="1/2"),
                  probe_prompts=1)  # fmt: skip
    assert result.verdict == verdict
    lag = check(paper_checkpoint, reports, lagging(), probe_prompts=1)
    assert any("cannot show a lag" in f.text for f in lag.findings)


# -- the probe ----------------------------------------------------------------------------------


def test_probe_prompts_are_longer_than_a_selection(paper_checkpoint):
    from evalkit.prompts.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(paper_checkpoint)
    prompts = probe_prompts(tokenizer, 32, 3, 16, max_positions=1024)
    assert len({p.text for p in prompts}) == 3
    assert all(32 < len(p.token_ids) <= 96 for p in prompts)
    again = probe_prompts(tokenizer, 32, 3, 16, max_positions=1024)
    assert [p.token_ids for p in again] == [p.token_ids for p in prompts]
    assert all(len(p.token_ids) > 128 for p in probe_prompts(tokenizer, 128, 2, 16))
    short = probe_prompts(tokenizer, 128, 1, 16, max_positions=100)  # the model has no more
    assert len(short[0].token_ids) <= 83


def probed(paper_checkpoint, name, reports, entries, *, salt="", pattern=None, flaky=False):
    """The check of an arm whose server continues by `rule` and `salt`."""
    calls = []

    def answer(prompt, budget):
        calls.append(prompt)
        return rule([salt, len(calls) if flaky else 0, *prompt], budget)

    with FakeServer(reports=reports, answer=answer) as server:
        engine = loaded(paper_checkpoint, server.url, probe_prompts=4, probe_tokens=6)
        one = arm(name, pattern=pattern)
        schedule = one.schedule(engine.native())
        result = check_arm(engine, one, schedule, entries)
    return result, CheckedArm(name, str(schedule), result.probe)


def test_equal_continuations_say_that_nothing_happened(paper_checkpoint):
    off, on = sglang("{}"), sglang('{"index_topk_pattern": "FSFSFSFS"}')
    base, first = probed(paper_checkpoint, "baseline", off, [])
    assert base.deterministic
    assert len(base.probe) == 4
    same, _ = probed(paper_checkpoint, "1/2", on, [first], pattern="FSFSFSFS")
    assert same.verdict == "unknown"
    assert "all continuations equal baseline's: the setting probably did nothing" in same.reason
    acts, entry = probed(paper_checkpoint, "1/2", on, [first], pattern="FSFSFSFS", salt="reuse")
    assert acts.verdict == "engaged"
    assert "0 of 4 continuations equal baseline's: the setting acts" in acts.reason
    again, _ = probed(paper_checkpoint, "1/2", on, [first, entry], pattern="FSFSFSFS", salt="reuse")
    assert any(
        "4 of 4 continuations are those before the restart" in f.text for f in again.findings
    )
    twin, _ = probed(paper_checkpoint, "baseline again", off, [first])
    assert any("equal baseline's (same schedule)" in f.text for f in twin.findings)


def test_a_server_that_never_says_the_same_shows_nothing(paper_checkpoint):
    on = sglang('{"index_topk_pattern": "FSFSFSFS"}')
    _, first = probed(paper_checkpoint, "baseline", sglang("{}"), [])
    result, _ = probed(paper_checkpoint, "1/2", on, [first], pattern="FSFSFSFS", flaky=True)
    assert result.deterministic is False
    assert result.verdict == "unknown"
    assert "the probe shows nothing" in result.reason


def test_different_continuations_without_known_settings_are_no_proof(paper_checkpoint):
    _, first = probed(paper_checkpoint, "baseline", {}, [])
    result, _ = probed(paper_checkpoint, "1/2", {}, [first], pattern="FSFSFSFS", salt="reuse")
    assert result.verdict == "not engaged"  # it serves "tiny", which is not the arm's model


# -- the run ------------------------------------------------------------------------------------

RECIPE = """
model = "{model}"
[engine]
kind = "openai_server"
backoff = 0.01
retries = 2
probe_prompts = 2
probe_tokens = 4
[[tasks]]
kind = "needle"
lengths = [256]
depths = [0, 50, 100]
repeats = 2
haystacks = 2
value_digits = 4
key_adjectives = ["brave", "calm"]
key_nouns = ["apple", "arrow"]
max_new_tokens = 4
[[arms]]
name = "baseline"
server.urls = ["{base}"]
[[arms]]
name = "1/2"
retention = "1/2"
server.urls = ["{half}"]
"""


def test_an_arm_that_is_not_engaged_gets_no_results(paper_checkpoint, tmp_path, capsys):
    """The runner asks first, refuses by name, keeps the evidence, and goes on when it is mended."""
    from evalkit.run.store import RunStore

    out, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    with FakeServer(reports=sglang("{}")) as base, FakeServer(reports=sglang("{}")) as half:
        text = RECIPE.format(model=paper_checkpoint, base=base.url, half=half.url)
        recipe.write_text(text, encoding="utf-8")
        assert evalkit("run", recipe, "--out", out) == 2
        error = capsys.readouterr().err
        assert "arm 1/2: not engaged: sglang 0.5.19 runs full layers 0, 1" in error
        assert "start it as: python -m sglang.launch_server" in error
        store = RunStore(out)
        assert len(store.read_samples("baseline")) == 6
        assert store.read_samples("1/2") == {}
        entries = {entry.name: entry.stored for entry in store.read_run().arms}
        assert entries["baseline"]["engagement"] == {"verdict": "engaged"}
        assert entries["1/2"]["check"]["verdict"] == "not engaged"
        assert entries["1/2"]["check"]["servers"][0]["kind"] == "sglang"
        # The server is started again with the arm's schedule, at another address.
        with FakeServer(
            reports=sglang('{"index_topk_pattern": "FSFSFSFS"}'),
            answer=lambda prompt, budget: rule(["reuse", *prompt], budget),
        ) as mended:
            recipe.write_text(text.replace(half.url, mended.url), encoding="utf-8")
            assert evalkit("run", recipe, "--out", out) == 0
        entries = {entry.name: entry.stored for entry in store.read_run().arms}
        assert entries["1/2"]["engagement"] == {"verdict": "engaged"}
        assert len(store.read_samples("1/2")) == 6


def test_unknown_results_are_marked(paper_checkpoint, tmp_path, capsys):
    out, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    silent = {"/version": {"version": "0.28.0"}, "/v1/models": {"data": [{"id": "model"}]}}
    with FakeServer(model="model", reports=silent) as server:
        text = RECIPE.format(model=paper_checkpoint, base=server.url, half=server.url)
        recipe.write_text(text, encoding="utf-8")
        assert evalkit("run", recipe, "--out", out) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1/2: schedule unknown: not proved" in printed
    assert "1/2 4/8 asked, not proved" in printed
    # S15: it answers like the baseline, and nothing else proves its schedule
    row = json.loads((out / "compare.json").read_text())["rows"][-1]
    assert (row["arm"], row["verdict"]) == ("1/2", "withheld")
    assert row["reasons"][0]["kind"] == "not_engaged"
    assert "all continuations equal baseline's: the setting probably did nothing" in printed


def test_check_by_hand(paper_checkpoint, tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    with FakeServer(reports=sglang("{}")) as server:
        text = RECIPE.format(model=paper_checkpoint, base=server.url, half=server.url)
        recipe.write_text(text, encoding="utf-8")
        assert evalkit("check", server.url) == 0
        assert "sglang 0.5.19" in capsys.readouterr().out
        assert evalkit("check", server.url, "--recipe", recipe, "--arm", "baseline") == 0
        assert "verdict    engaged" in capsys.readouterr().out
        assert evalkit("check", server.url, "--recipe", recipe, "--arm", "1/2") == 2
        assert "not engaged" in capsys.readouterr().err
        assert evalkit("check", server.url, "--recipe", recipe, "--arm", "none") == 2
        assert "no such arm" in capsys.readouterr().err


def test_arms_take_turns_on_their_servers(paper_checkpoint, tmp_path):
    """Whatever drifts, drifts for all arms: four samples each, then the next arm."""
    out, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    with FakeServer(reports=sglang("{}")) as base, FakeServer(reports=sglang("{}")) as same:
        text = RECIPE.format(model=paper_checkpoint, base=base.url, half=same.url)
        recipe.write_text(text.replace('retention = "1/2"\n', ""), encoding="utf-8")
        turns: list[str] = []
        for name, fake in (("base", base), ("same", same)):
            fake.answer = lambda p, n, name=name: (turns.append(name), rule(p, n))[1]
        settings = ["--set", "engine.turn_samples=4", "--set", "engine.probe_prompts=0"]
        assert evalkit("run", recipe, "--out", out, *settings) == 0
    assert turns == ["base"] * 4 + ["same"] * 4 + ["base"] * 2 + ["same"] * 2


# -- time ---------------------------------------------------------------------------------------


class Dripping(Served):
    """Sends a byte now and then, for ever: of the head, or of the body."""

    def __init__(self, first: bytes) -> None:
        super().__init__()
        self.first = first

    async def handle(self, request, writer):
        writer.write(self.first)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 200 X\r\ncontent-length: 9999999\r\n\r\n", b"HTTP/1.1 200 X\r\nslow: "]
)
def test_a_server_that_drips_is_left(first, monkeypatch, capsys):
    monkeypatch.setattr(server_info, "_SECONDS", 0.3)
    with Dripping(first) as server:
        assert evalkit("check", server.url) == 2
        said = capsys.readouterr().err
        assert f"{server.url}: no whole answer within 0 s" in " ".join(said.split())
        with JsonClient(server.url, Key("")) as client:
            assert client.post("/generate", {}, 0.2) is None


def test_check_says_what_it_does_not_see(capsys):
    with FakeServer(reports=sglang("{}")) as server:
        assert evalkit("check", server.url) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not seen what environment variables told the server" in said
