"""Rows by version, exports read back on the checkpoint's own config.json, keys of imports."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from evalkit.cli.main import app
from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import export, read
from evalkit.dsa.engine_config.import_keys import refuse_foreign_keys
from evalkit.dsa.engine_config.published_patterns import published_pattern
from evalkit.dsa.engine_config.released_models import known_config
from evalkit.dsa.engine_config.start_flags import CAPTURE, refuse_flags
from evalkit.dsa.engine_config.versions import choose, families

GLM5 = known_config("zai-org/GLM-5")
V32 = known_config("deepseek-ai/DeepSeek-V3.2")
NATIVE = published_pattern("glm-5.2-native").schedule
HALF = published_pattern("glm-5-1/2").schedule


def command(*words):
    """Exit code and output of a command line, as `evalkit` gives them."""
    result = CliRunner().invoke(app, ["schedule", *words])
    return result.exit_code, result.output + str(result.exception or "")


def types(schedule):
    return ["full" if full else "shared" for full in schedule.computes]


# -- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "model_type", "row", "version"),
    [
        ("sglang", "glm_moe_dsa", "sglang", "0.5.23"),
        ("sglang==0.5.20", "glm_moe_dsa", "sglang", "0.5.20"),
        ("sglang==0.5.19", "glm_moe_dsa", "sglang-0.5.19", "0.5.19"),
        ("sglang==0.5.18", "", "sglang-0.5.19", "0.5.18"),
        ("sglang==0.5.15.post1", "", "sglang-0.5.17", "0.5.15.post1"),
        ("sglang==0.5.9", "", "sglang-2026-06", "0.5.9"),
        ("sglang", "deepseek_v4", "sglang-v4", "0.5.23"),
        ("vllm", "deepseek_v32", "vllm", "0.33.0"),
        ("vllm", "deepseek_v4", "vllm-v4", "0.33.0"),
        ("vllm", "hy_v4", "vllm-hy-v4", "0.33.0"),
        ("vllm-ascend", "deepseek_v4", "vllm-ascend-v4", "0.23.0"),
        ("megatron", "", "megatron-0.16", "0.16.1"),
        ("megatron==main", "", "megatron", "main"),
        ("transformers", "hy_v4", "transformers-hy-v4", ""),
    ],
)
def test_a_version_has_one_row(engine, model_type, row, version):
    choice = choose(engine, model_type=model_type)
    assert (choice.name, choice.version) == (row, version)


@pytest.mark.parametrize(
    ("engine", "caution"),
    [
        ("vllm==0.11.0", "older than 0.33.0"),
        ("vllm==0.34.1", "newer than 0.33.0"),
        ("sglang==0.5.18", ""),
        ("sglang==0.5.23", ""),
    ],
)
def test_versions_that_were_not_tried_say_so(engine, caution):
    assert choose(engine, model_type="deepseek_v32").caution.startswith(caution)
    assert bool(choose(engine, model_type="deepseek_v32").caution) == bool(caution)


@pytest.mark.parametrize("reported", ["dev", "0.0.0.dev0", "unknown", "\x1b[31m"])
def test_a_server_built_from_a_checkout_leaves_the_version_to_the_name(reported):
    named = choose("sglang==0.5.19", reported=reported)
    assert (named.name, named.origin) == ("sglang-0.5.19", "as named")
    newest = choose("sglang", reported=reported)
    assert (newest.name, newest.version) == ("sglang", "0.5.23")
    assert f"says version {reported}, which is no release" in newest.caution


@pytest.mark.parametrize("version", ["0.5.19; rm -r x", "0.5.19 0.5.20", "abc", "v"])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(ScheduleError, match=r"write a version such as sglang==0\.5\.23"):
        choose(f"sglang=={version}")


@pytest.mark.parametrize("engine", ["sglang", "sglang==0.5.19", "vllm", "vllm-ascend"])
@pytest.mark.parametrize("model_type", ["glm5_next_text", "dots3_note_text", "mistral_large4_text"])
def test_models_whose_code_reads_no_reuse_are_refused_by_name(engine, model_type):
    half = ReuseSchedule.uniform((1, 3, 5, 7), "1/2")
    row = choose(engine, model_type=model_type).name
    with pytest.raises(ScheduleError, match="no reuse was read"):
        export(half, engine=row, model_type=model_type, config={"model_type": model_type})
    with pytest.raises(ScheduleError, match="does not read index_topk_freq"):
        refuse_foreign_keys(engine, DIALECTS[row], {"index_topk_freq": 4})


def test_the_server_goes_before_the_recipe_and_says_so():
    choice = choose("sglang==0.5.23", model_type="glm_moe_dsa", reported="0.5.19")
    assert (choice.name, choice.origin) == ("sglang-0.5.19", "the server says so")
    assert choice.caution == "the server is version 0.5.19, not 0.5.23"
    later = choose("vllm", reported="0.41.0rc1+g3f")
    assert later.name == "vllm"
    assert later.caution.startswith("newer than 0.33.0, the newest one")


def test_names_that_are_not_known_name_the_near_one():
    with pytest.raises(ScheduleError, match=r"engine sglnag: not known .did you mean sglang"):
        choose("sglnag")
    with pytest.raises(ScheduleError, match="slime has no versions"):
        choose("slime==1")
    with pytest.raises(ScheduleError, match=r"write a version such as sglang==0.5.23"):
        choose("sglang==latest")
    with pytest.raises(ScheduleError, match="only releases were read"):
        choose("sglang==main")


def test_ranges_of_a_family_do_not_overlap_and_end_with_an_open_one():
    for family in families():
        rows = [row for row in DIALECTS.values() if row.family == family and not row.models]
        released = [row for row in rows if row.status == "released"]
        assert sum(not row.until for row in released) == 1, family


# -- E1: settings that come after the configuration class ------------------------------------------


@pytest.mark.parametrize("settings", [{"index_topk_freq": 4}, {"index_topk_pattern": HALF.pattern}])
def test_sglang_since_0_5_20_does_not_reach_pattern_and_frequency_of_glm5(settings):
    new = read(GLM5, engine="sglang==0.5.23", layers=78, overrides=settings)
    assert all(new.schedule.computes)
    assert new.decided_by == "indexer_types, filled by GlmMoeDsaConfig from config.json"
    name = next(iter(settings))
    assert f"{name} is set and does not act: indexer_types goes before it" in new.warnings
    old = read(GLM5, engine="sglang==0.5.19", layers=78, overrides=settings)
    assert not all(old.schedule.computes)
    assert old.decided_by == name
    # DeepSeek-V3.2 has no class that fills the field: there the pattern acts in both.
    for engine in ("sglang==0.5.19", "sglang==0.5.23"):
        short = {"index_topk_pattern": HALF.pattern[:61]}
        effective = read(V32, engine=engine, layers=61, overrides=short)
        assert effective.schedule.pattern == HALF.pattern[:61]


@pytest.mark.parametrize("version", ["0.5.17", "0.5.19", "0.5.20", "0.5.23"])
@pytest.mark.parametrize("model", ["zai-org/GLM-5", "zai-org/GLM-5.1", "zai-org/GLM-5.2"])
def test_an_export_runs_on_the_checkpoint(model, version):
    config = known_config(model)
    native = NATIVE if model.endswith("5.2") else ReuseSchedule.uniform(78)
    letters = native.pattern[:6] + "S" + native.pattern[7:] if native == NATIVE else HALF.pattern
    schedule = ReuseSchedule.from_pattern(letters)
    exported = export(schedule, engine=f"sglang=={version}", native=native, config=config)
    effective = read(
        config, engine=f"sglang=={version}", layers=78, native=native, overrides=exported.overrides
    )
    assert effective.schedule == schedule
    if version >= "0.5.20":
        assert exported.overrides["indexer_types"] == types(schedule)
    else:
        assert exported.overrides == {"index_topk_pattern": letters}


def test_start_lines_are_short_where_the_pattern_is_enough():
    schedule = published_pattern("v3.2-documented").schedule
    exported = export(schedule, engine="sglang", config=V32)
    assert exported.overrides == {"index_topk_pattern": schedule.pattern}


def test_an_export_that_would_run_other_layers_is_refused():
    # vLLM reads no indexer_types: a checkpoint that has only those is not run as it was made.
    config = {"model_type": "glm_moe_dsa", "indexer_types": types(NATIVE)}
    with pytest.raises(
        ScheduleError, match=r"vllm would run F{78}, not FFFSSS.*its default decides"
    ):
        export(NATIVE, engine="vllm", native=NATIVE, config=config)
    effective = read(config, engine="vllm", layers=78, native=NATIVE, overrides={})
    assert effective.warnings[-1].startswith(
        "layers 3, 4, 5, 7, 8, 9 … run full and have no indexer"
    )


# -- import --------------------------------------------------------------------------------------


def test_import_says_what_sglang_does_with_a_frequency():
    code, text = command("import", "zai-org/GLM-5", '{"index_topk_freq": 4}', "--engine", "sglang")
    assert code == 0
    assert "version 0.5.23 (newest release)" in text
    assert "(78 full, 0 shared)" in text
    code, text = command(
        "import", "zai-org/GLM-5", '{"index_topk_freq": 4}', "--engine", "sglang==0.5.19"
    )
    assert "version 0.5.19 (as named)" in text
    assert "(21 full, 57 shared)" in text


@pytest.mark.parametrize(
    ("settings", "engine", "words"),
    [
        ({"index_topk_frq": 4}, "sglang", "index_topk_frq: no setting of index reuse: did you"),
        ({"index_topk_freq": 4}, "megatron==main", "did you mean dsa_indexer_topk_freq?"),
        ({"index_topk_freq": 4}, "megatron", "megatron-core 0.16.1, the newest release: it has"),
        ({"indexer_types": ["full"]}, "vllm", "vllm does not read indexer_types"),
        ({"text_config": {"index_topk_frq": 4}}, "vllm", "did you mean index_topk_freq?"),
        ({"colour": "red"}, "sglang", "colour: no setting of index reuse (it reads indexer_types"),
    ],
)
def test_keys_that_the_engine_does_not_read_are_errors(settings, engine, words):
    code, text = command("import", "zai-org/GLM-5", json.dumps(settings), "--engine", engine)
    assert code != 0
    assert words in text


def test_keys_of_other_kinds_are_left_alone():
    settings = '{"max_position_embeddings": 4096, "use_index_cache": true, "index_topk_freq": 2}'
    code, text = command("import", "deepseek-ai/DeepSeek-V3.2", settings, "--engine", "vllm")
    assert code == 0
    assert "(31 full, 30 shared)" in text


# -- E7: DeepSeek-V4 and Megatron ------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "sglang", "vllm==0.33.0", "sglang==0.5.23"])
def test_releases_that_ignore_v4_settings_refuse_and_name_a_release_first(engine):
    code, text = command(
        "export", "deepseek-ai/DeepSeek-V4-Flash", "--engine", engine, "--retention", "1/2"
    )
    assert code != 0
    assert "(DeepSeek-V4): reuse settings are ignored" in text
    assert text.index("use vllm-ascend-v4") < text.index("unreleased: vllm-v4-pr51209")
    code, text = command(
        "import", "deepseek-ai/DeepSeek-V4-Flash", '{"index_topk_freq": 2}', "--engine", engine
    )
    assert code != 0
    assert "does not read index_topk_freq" in text


def test_pull_requests_and_main_branches_are_marked():
    half = ReuseSchedule.uniform(range(2, 43, 2), "1/2")
    notes = export(half, engine="vllm-v4-pr51209").notes
    assert "not in a release: a pull request or fork" in notes
    exported = export(NATIVE, engine="megatron==main")
    assert "not in a release: the main branch" in exported.notes
    with pytest.raises(ScheduleError, match=r"megatron-core 0.16.1.*megatron==main"):
        export(NATIVE, engine="megatron-0.16")


# -- E8: nulls and wrong types ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["index_topk_freq", "index_skip_topk_offset"])
def test_explicit_nulls(name):
    config = {**GLM5, name: None}
    for engine in ("sglang", "sglang==0.5.19", "vllm", "vllm-ascend"):
        with pytest.raises(ScheduleError, match=f"config.json has {name}: null.*remove the line"):
            read(config, engine=engine, layers=78, overrides={})
    plain = {"model_type": "deepseek_v32", "index_topk_freq": 4, name: None}
    assert read(plain, engine="sglang", layers=8, overrides={}).decided_by
    with pytest.raises(ScheduleError, match=f"vllm: {name} is null, and it computes with it"):
        read(plain, engine="vllm", layers=8, overrides={})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"indexer_types": True}, "indexer_types True is not a list"),
        ({"indexer_types": ["full", "half"]}, "indexer type 'half'"),
        ({"indexer_types": ["shared", "full"]}, "does not begin with full"),
        ({"index_topk_freq": "4"}, "index_topk_freq '4' is not a whole number"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 1.5}, "index_skip_topk_offset 1.5"),
        ({"cli_factor": True}, "cli_factor True is not a whole number"),
    ],
)
def test_values_of_the_wrong_type(settings, words):
    with pytest.raises(ScheduleError, match=words):
        read(settings, engine="sglang", layers=2)


# -- E9: LongCat and hy_v4 -------------------------------------------------------------------------


def test_cli_factor_of_longcat():
    effective = read({"cli_factor": 2}, engine="sglang==0.5.19", layers=6)
    assert (effective.schedule.pattern, effective.decided_by) == ("FSFSFS", "cli_factor")
    with pytest.raises(ScheduleError, match="cli_factor decides"):
        schedule = ReuseSchedule.from_pattern("FSSSFS")
        export(schedule, engine="sglang==0.5.19", config={"cli_factor": 2})
    exported = export(schedule, engine="sglang", config={"cli_factor": 2})
    assert exported.overrides["indexer_types"] == types(schedule)


def test_hy_v4_shares_by_its_own_default():
    config = {"model_type": "hy_v4", "num_hidden_layers": 9}
    for engine in ("sglang", "vllm-hy-v4"):
        effective = read(config, engine=engine, layers=9, overrides={})
        assert effective.schedule.pattern == "FFSSSFSSS"
        assert effective.decided_by.startswith("indexer_types, filled by the hy_v4 class")
    with pytest.raises(ScheduleError, match="the length must match"):
        read({"indexer_types": ["full"]}, engine="vllm-hy-v4", layers=2)


# -- E2: start lines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tp", "8", "--enable-return-indexer-topk"), "this start has 8.*--dp 8"),
        (("--tp=4", "--dp", "2", "--enable-dp-attention", CAPTURE), "this start has 2"),
        (("--tp", "8", "--dp", "8", CAPTURE), "this start has 8"),
        (("--enable-two-batch-overlap",), "does not go with shared layers"),
    ],
)
def test_start_lines_that_sglang_refuses(flags, words):
    with pytest.raises(ScheduleError, match=words):
        refuse_flags("sglang", flags, NATIVE)
    refuse_flags("vllm", flags, NATIVE)


def test_start_lines_that_sglang_takes():
    for flags in (("--tp", "8"), (CAPTURE,), ("--tp", "1", CAPTURE)):
        refuse_flags("sglang", flags, NATIVE)
    refuse_flags("sglang", ("--tp", "8", "--dp=8", "--enable-dp-attention", CAPTURE), NATIVE)
    refuse_flags("sglang", ("--enable-two-batch-overlap",), ReuseSchedule.uniform(78))


# -- our plugin in vLLM ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "retention", "says"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "1/4", "EVALKIT_SCHEDULE='" + "FSSS" * 15 + "F lag=1'"),
        ("zai-org/GLM-5", "1", "EVALKIT_SCHEDULE='" + "F" * 78 + " lag=1'"),
        (
            "deepseek-ai/DeepSeek-V4-Flash",
            "1/4",
            "EVALKIT_SCHEDULE='FSSSFSSSFSSSFSSSFSSSF lag=1 layers=2,4,6,",
        ),
    ],
)
def test_the_plugin_takes_a_lag_and_prints_its_start_line(model, retention, says):
    arguments = ("--engine", "vllm-plugin", "--retention", retention, "--lag", "1")
    code, text = command("export", model, *arguments)
    assert code == 0
    assert f"{says}" in " ".join(text.split())
    assert f"vllm serve {model}" in text


def test_what_the_plugin_notes_is_read_back():
    code, text = command(
        "import", "4", '{"evalkit_schedule": "FSFS lag=1"}', "--engine", "vllm-plugin"
    )
    assert code == 0
    assert "schedule   FSFS lag=1" in text


def test_pipeline_stages_are_refused_where_they_cut_a_source_from_its_reader():
    arguments = ("--engine", "vllm-plugin", "--retention", "1/2", "--stages", "0,2")
    assert command("export", "4", *arguments)[0] == 0
    code, text = command("export", "4", *arguments, "--lag", "1")
    assert code != 0
    assert "layer 2 reads the selection of layer 0 in decode" in " ".join(text.split())


@pytest.mark.parametrize("target", ["²", "0", "10001", "9" * 5000])
def test_a_number_of_layers_that_no_model_has_is_one_line(target):
    code, output = command("show", target)
    assert code != 0
    assert "Error" in output or "1 to 10000 layers" in output or "no such directory" in output
    assert "Traceback" not in output


def test_a_factor_of_nothing_is_refused_as_the_engine_does():
    with pytest.raises(ScheduleError, match="cli_factor 0 must be 1 or more"):
        read(V32, engine="sglang", layers=61, overrides={"cli_factor": 0})


def test_settings_inside_text_config_count_beside_those_outside():
    both = {"text_config": {"index_topk": 9}, "index_topk_pattern": HALF.pattern}
    assert read(V32, engine="vllm", layers=78, overrides=both).schedule == HALF
