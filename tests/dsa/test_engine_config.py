"""Schedules in every engine's language: each row and worked string, refusals, round trips."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dsa import ReuseSchedule, ScheduleError
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import engines_for, export, from_freq, from_pattern, read
from evalkit.dsa.engine_config.published_patterns import published, published_pattern

C4 = tuple(range(2, 43, 2))  # DeepSeek-V4-Flash: 43 layers, compressed-sparse on 2, 4, …, 42
GLM52 = ReuseSchedule.from_pattern("FFF" + "SSSF" * 18 + "SSS")
V4 = [name for name, row in DIALECTS.items() if row.space == "c4"]


def full(schedule):
    return list(schedule.full_layer_ids)


def formula(layers, f, shift):
    """The second implementation: full layers of max(i − shift, 0) mod f == 0."""
    return [i for i in range(layers) if max(i - shift, 0) % f == 0]


# -- worked strings -----------------------------------------------------------------------------

HF_LIKE = [
    "sglang",
    "sglang-0.5.19",
    "sglang-0.5.17",
    "sglang-2026-06",
    "thudm-patch",
    "vllm",
    "vllm-ascend",
    "transformers",
]


@pytest.mark.parametrize("engine", [*HF_LIKE, "nemo-automodel", "lmdeploy"])
def test_61_layers_at_frequency_4(engine):
    schedule = from_freq(61, 4, engine=engine)
    assert full(schedule) == [0, *range(1, 58, 4)]
    assert schedule.pattern == "FF" + "SSSF" * 14 + "SSS"
    assert schedule.pattern.count("F") == 16


@pytest.mark.parametrize("engine", ["sglang", "vllm", "vllm-ascend", "transformers", "lmdeploy"])
def test_61_layers_at_frequency_4_offset_3(engine):
    schedule = from_freq(61, 4, engine=engine, offset=3)
    assert full(schedule) == [0, 1, *range(2, 59, 4)]
    assert len(full(schedule)) == 17


@pytest.mark.parametrize("engine", ["prime-rl", "megatron", "atom"])
def test_61_layers_where_the_rule_has_no_head_start(engine):
    schedule = from_freq(61, 4, engine=engine)
    assert full(schedule) == list(range(0, 61, 4))
    assert len(full(schedule)) == 16  # as many as SGLang keeps, and not the same layers
    assert schedule != from_freq(61, 4, engine="sglang")


def test_78_layers_at_frequency_4():
    glm5 = from_freq(78, 4, engine="sglang")
    assert glm5.pattern == "FF" + "SSSF" * 19
    assert full(glm5) == [0, *range(1, 78, 4)]
    native = from_freq(78, 4, engine="sglang", offset=3)
    assert native == GLM52
    assert full(native) == [0, 1, *range(2, 75, 4)]
    assert len(full(glm5)) == len(full(native)) == 21
    assert glm5 != native
    for engine in ("prime-rl", "megatron"):
        schedule = from_freq(78, 4, engine=engine)
        assert full(schedule) == list(range(0, 77, 4))
        assert (len(full(schedule)), 78 - len(full(schedule))) == (20, 58)


def test_slime_without_an_offset_shares_the_first_layers():
    with pytest.raises(ScheduleError, match=r"slime: frequency 4 at offset 0 .*SSSFSSSF"):
        from_freq(78, 4, engine="slime")
    assert full(from_freq(78, 4, engine="slime", offset=3)) == full(GLM52)


@pytest.mark.parametrize("engine", HF_LIKE)
def test_61_layers_at_frequency_2(engine):
    schedule = from_freq(61, 2, engine=engine)
    assert full(schedule) == [0, *range(1, 61, 2)]
    assert (len(full(schedule)), len(schedule.shared_layer_ids)) == (31, 30)
    # SGLang's own test: even layers from 2 on copy the layer before.
    for layer in range(2, 61, 2):
        assert schedule.source[layer] == layer - 1


@pytest.mark.parametrize("engine", ["ascend-sglang-v4", "vllm-v4-pr51209", "sglang-v4-pr26229"])
def test_v4_flash_counted_from_the_first_c4_layer(engine):
    half = from_freq(C4, 2, engine=engine)
    assert half.shared_layer_ids == (4, 8, 12, 16, 20, 24, 28, 32, 36, 40)
    assert half.pattern == "FS" * 10 + "F"
    quarter = from_freq(C4, 4, engine=engine)
    assert quarter.shared_layer_ids == tuple(i for i in C4 if i not in (2, 10, 18, 26, 34, 42))
    assert quarter.shared_layer_ids[:6] == (4, 6, 8, 12, 14, 16)
    assert quarter.shared_layer_ids[-2:] == (38, 40)
    assert len(full(quarter)) == 6


@pytest.mark.parametrize("engine", ["vllm-ascend-v4", "vllm-v4-pr49085"])
def test_v4_flash_with_a_head_start(engine):
    half = from_freq(C4, 2, engine=engine)
    assert half.shared_layer_ids == tuple(range(6, 43, 4))
    assert half.pattern == "FFS" + "FS" * 9
    quarter = from_freq(C4, 4, engine=engine)
    assert quarter.shared_layer_ids[:5] == (6, 8, 10, 14, 16)
    assert quarter.shared_layer_ids[-2:] == (40, 42)
    assert len(full(quarter)) == 6


def test_v4_flash_equal_counts_are_not_equal_schedules():
    one, two = (from_freq(C4, 2, engine=e) for e in ("ascend-sglang-v4", "vllm-ascend-v4"))
    assert len(full(one)) == len(full(two)) == 11
    assert one != two
    # The rule of V3.2 over absolute ids would share every one of the 21 layers.
    assert all(max(i - 1, 0) % 2 for i in C4)


# -- rows ---------------------------------------------------------------------------------------

# engine -> (shift without an offset, shift at offset 3, or None where it is not read)
SHIFTS = {
    "sglang": (1, 2),
    "sglang-0.5.19": (1, 2),
    "sglang-0.5.17": (1, 2),
    "sglang-2026-06": (1, 2),
    "thudm-patch": (1, None),
    "vllm": (1, 2),
    "vllm-hy-v4": (1, 2),
    "vllm-ascend": (1, 2),
    "vllm-ascend-v4": (1, None),
    "vllm-v4-pr51209": (0, None),
    "vllm-v4-pr49085": (1, 2),
    "ascend-sglang-v4": (0, None),
    "sglang-v4-pr26229": (0, None),
    "transformers": (1, 2),
    "megatron": (0, 2),
    "prime-rl": (0, None),
    "nemo-automodel": (1, None),
    "atom": (0, 2),
    "lmdeploy": (1, 2),
    "trtllm-pr15513": (1, 2),
}


@pytest.mark.parametrize("engine", SHIFTS)
@pytest.mark.parametrize("freq", [1, 2, 3, 4, 8])
def test_frequency_rule_of_every_row(engine, freq):
    plain, moved = SHIFTS[engine]
    schedule = from_freq(61, freq, engine=engine)
    assert list(schedule.full_layers) == formula(61, freq, plain)
    if moved is None:
        with pytest.raises(ScheduleError, match=f"{engine} does not read an offset"):
            from_freq(61, freq, engine=engine, offset=3)
    else:
        schedule = from_freq(61, freq, engine=engine, offset=3)
        assert list(schedule.full_layers) == formula(61, freq, moved)


def test_every_row_of_the_table_is_here():
    special = {"slime", "transformers-hy-v4", "sglang-v4-pr26274"}  # their rules have own tests
    none = {"sglang-v4", "vllm-v4", "transformers-v32", "transformers-v4", "megatron-0.16"}
    none |= {"sglang-v41", "vllm-v41", "vllm-plugin", "vllm-plugin-v4"}
    none |= {"sglang-others", "vllm-others", "vllm-ascend-others"}
    assert set(DIALECTS) == set(SHIFTS) | special | none


@pytest.mark.parametrize("engine", ["sglang-v4", "vllm-v4", "transformers-v32", "transformers-v4"])
def test_engines_without_sharing_ignore_settings_and_say_so(engine):
    layers = C4 if engine.endswith("v4") else 61
    effective = read({"index_topk_freq": 2, "use_index_cache": True}, engine=engine, layers=layers)
    assert all(effective.schedule.computes)
    assert "index_topk_freq is ignored" in effective.warnings[0]
    with pytest.raises(ScheduleError, match="has no frequency rule"):
        from_freq(layers, 2, engine=engine)
    with pytest.raises(ScheduleError, match=f"{engine} cannot express reuse"):
        export(ReuseSchedule.uniform(layers, "1/2"), engine=engine)
    off = export(ReuseSchedule.uniform(layers), engine=engine)
    assert off.overrides == {}


def test_rows_with_a_rule_of_their_own():
    assert full(from_freq(78, 4, engine="transformers-hy-v4")) == formula(78, 4, 1)
    assert full(read({}, engine="transformers-hy-v4", layers=78).schedule) == formula(78, 4, 1)
    with pytest.raises(ScheduleError, match="built in"):
        from_freq(78, 2, engine="transformers-hy-v4")
    with pytest.raises(ScheduleError, match="not known here, write a pattern"):
        from_freq(C4, 2, engine="sglang-v4-pr26274")
    assert from_pattern(C4, "FS" * 10 + "F", engine="sglang-v4-pr26274").shared_layer_ids[0] == 4
    assert full(from_freq(61, 4, engine="slime", offset=1)) == list(range(0, 61, 4))
    # Megatron takes offset 0 for 1: layer numbers begin at 1 there.
    assert from_freq(61, 4, engine="megatron", offset=1) == from_freq(61, 4, engine="megatron")


@pytest.mark.parametrize(
    ("engine", "offset"),
    [("sglang", 0), ("sglang-2026-06", -1), ("vllm-v4-pr49085", 0), ("megatron", -1)],
)
def test_offsets_that_an_engine_asserts_against(engine, offset):
    with pytest.raises(ScheduleError, match=f"{engine}: offset {offset} must be"):
        from_freq(61, 4, engine=engine, offset=offset)


@pytest.mark.parametrize("engine", ["vllm", "transformers", "atom", "lmdeploy"])
def test_offset_0_shares_the_first_layer(engine):
    with pytest.raises(ScheduleError, match="shares layer 0"):
        from_freq(61, 4, engine=engine, offset=0)


EXACT = ["vllm-v4-pr51209", "vllm-v4-pr49085", "sglang-v4-pr26229"]
STRICT = ["sglang-2026-06", "thudm-patch", "transformers", "lmdeploy", "nemo-automodel"]
STRICT += ["sglang-v4-pr26274"]
LENIENT = ["sglang", "vllm", "vllm-ascend", "vllm-ascend-v4", "ascend-sglang-v4", "prime-rl"]
NO_PATTERN = ["megatron", "slime"]


@pytest.mark.parametrize("engine", LENIENT)
def test_layers_beyond_a_short_pattern_are_full(engine):
    assert from_pattern(6, "FSS", engine=engine).pattern == "FSSFFF"
    config = {"use_index_cache": True, "index_topk_pattern": "FSS"}
    effective = read(config, engine=engine, layers=6)
    assert effective.warnings == ("3 letters for 6 layers: layers from 3 on are full",)


@pytest.mark.parametrize("engine", [*STRICT, *EXACT])
def test_a_short_pattern_is_refused(engine):
    with pytest.raises(ScheduleError, match=f"{engine}: 3 letters for 6 layers"):
        from_pattern(6, "FSS", engine=engine)


@pytest.mark.parametrize("engine", [*LENIENT, *STRICT])
def test_letters_too_many_are_ignored(engine):
    assert from_pattern(3, "FSSFFF", engine=engine).pattern == "FSS"
    settings = {"use_index_cache": True, "index_topk_pattern": "FSSFFF"}
    assert "the last 3 are ignored" in read(settings, engine=engine, layers=3).warnings[0]


@pytest.mark.parametrize("engine", EXACT)
def test_letters_too_many_are_refused_where_the_length_counts(engine):
    with pytest.raises(ScheduleError, match="the length must match"):
        from_pattern(3, "FSSFFF", engine=engine)


@pytest.mark.parametrize("engine", [*LENIENT, *STRICT, *EXACT])
def test_first_letter_and_strange_letters_are_refused_by_name(engine):
    with pytest.raises(ScheduleError, match=f"{engine}: the pattern does not begin with F"):
        from_pattern(3, "SFF", engine=engine)
    with pytest.raises(ScheduleError, match=f"{engine}: pattern letter 's' at layer 1"):
        from_pattern(3, "FsS", engine=engine)
    with pytest.raises(ScheduleError, match=f"{engine}: index_topk_pattern .0, 4. is not F/S"):
        read({"use_index_cache": True, "index_topk_pattern": [0, 4]}, engine=engine, layers=8)


@pytest.mark.parametrize("engine", NO_PATTERN)
def test_engines_without_patterns(engine):
    with pytest.raises(ScheduleError, match=f"{engine} reads no pattern"):
        from_pattern(3, "FSS", engine=engine)


def test_allow_lists_are_refused():
    with pytest.raises(ScheduleError, match="TensorRT-LLM's own form"):
        from_pattern(8, [0, 4], engine="trtllm-pr15513")
    with pytest.raises(ScheduleError, match="imported, not exported"):
        export(ReuseSchedule.uniform(8, "1/2"), engine="trtllm-pr15513")


GATED = ["vllm-ascend-v4", "vllm-v4-pr51209", "ascend-sglang-v4", "prime-rl", "atom"]


@pytest.mark.parametrize("engine", GATED)
def test_without_its_gate_nothing_happens(engine):
    off = read({"index_topk_freq": 2}, engine=engine, layers=21)
    assert all(off.schedule.computes)
    assert off.decided_by == "use_index_cache is off"
    assert off.warnings == ("index_topk_freq is ignored: use_index_cache is not set",)
    on = read({"index_topk_freq": 2, "use_index_cache": True}, engine=engine, layers=21)
    assert not all(on.schedule.computes)


@pytest.mark.parametrize("engine", ["vllm", "vllm-ascend"])
def test_vllm_acts_without_the_gate_that_it_documents(engine):
    effective = read({"index_topk_freq": 4}, engine=engine, layers=61)
    assert full(effective.schedule) == formula(61, 4, 1)
    assert "the documentation asks for it" in effective.warnings[0]


@pytest.mark.parametrize("engine", ["sglang", "sglang-2026-06", "thudm-patch", "transformers"])
def test_ungated_engines_act_on_the_fields_alone(engine):
    effective = read({"index_topk_freq": 2}, engine=engine, layers=61)
    assert effective.decided_by == "index_topk_freq"
    assert len(full(effective.schedule)) == 31
    assert effective.warnings == ()


# What decides when several fields are there: pattern FSSS, types F F S S, frequency 2.
TYPES = ["full", "full", "shared", "shared"]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("sglang", "FFSS"),
        ("sglang-0.5.19", "FSSS"),
        ("sglang-0.5.17", "FSSS"),
        ("vllm-hy-v4", "FFSS"),
        ("vllm", "FSSS"),
        ("vllm-ascend", "FSSS"),
        ("prime-rl", "FSSS"),
        ("transformers", "FFSS"),
        ("nemo-automodel", "FFSS"),
        ("atom", "FFSS"),
        ("megatron", "FSFS"),
        ("transformers-hy-v4", "FFSS"),
    ],
)
def test_what_decides(engine, expected):
    settings = {
        "use_index_cache": True,
        "index_topk_pattern": "FSSS",
        "indexer_types": TYPES,
        "index_topk_freq": 2,
        "dsa_indexer_topk_freq": 2,
    }
    assert read(settings, engine=engine, layers=4).schedule.pattern == expected


def test_types_switch_prime_rl_and_atom_on_by_themselves():
    for engine in ("prime-rl", "atom"):
        assert read({"indexer_types": TYPES}, engine=engine, layers=4).schedule.pattern == "FFSS"


def test_an_offset_that_is_not_read_is_said():
    settings = {"index_topk_freq": 4, "index_skip_topk_offset": 3}
    effective = read(settings, engine="nemo-automodel", layers=78)
    assert effective.warnings == ("index_skip_topk_offset 3 is not read by nemo-automodel",)
    assert effective.schedule != GLM52
    settings["indexer_types"] = ["full" if c else "shared" for c in GLM52.computes]
    assert read(settings, engine="nemo-automodel", layers=78).schedule == GLM52


# -- pipeline stages and MTP --------------------------------------------------------------------

HALF = ReuseSchedule.from_pattern("FSFSFS")


@pytest.mark.parametrize("engine", ["sglang", "sglang-2026-06", "nemo-automodel"])
def test_selections_carried_over_stages(engine):
    assert from_freq(8, 2, engine=engine, stages=(0, 4)).pattern == "FFSFSFSF"


@pytest.mark.parametrize(
    "engine", ["thudm-patch", "vllm", "vllm-ascend", "megatron", "slime", "prime-rl"]
)
def test_stages_that_must_begin_on_a_full_layer(engine):
    offset = {"slime": 1, "megatron": 1}.get(engine)
    shared = 4 if engine in ("thudm-patch", "vllm", "vllm-ascend") else 3
    with pytest.raises(ScheduleError, match=f"{engine}: a pipeline stage .* layer {shared}"):
        from_freq(8, 2, engine=engine, offset=offset, stages=(0, shared))
    assert from_freq(8, 2, engine=engine, offset=offset, stages=(0, shared + 1))


def test_v4_stages_are_forced_full_or_refused():
    # Stages of V4-Flash begin at layers 0 and 23: C4 layers 24 and on; layer 24 is shared.
    for engine in ("vllm-v4-pr51209", "vllm-v4-pr49085"):
        plain = from_freq(C4, 2, engine=engine)
        start = plain.shared_layer_ids[4]
        forced = from_freq(C4, 2, engine=engine, stages=(0, start - 1))
        assert set(full(forced)) == {*full(plain), start}
        with pytest.raises(ScheduleError, match=f"{engine}: a pipeline stage begins"):
            export(plain, engine=engine, stages=(0, start - 1))
    letters = "FS" * 10 + "F"
    with pytest.raises(ScheduleError, match="it would refuse the pattern"):
        from_pattern(C4, letters, engine="vllm-v4-pr51209", stages=(0, 23))
    forced = from_pattern(C4, letters, engine="vllm-v4-pr49085", stages=(0, 23))
    assert 24 in full(forced)
    with pytest.raises(ScheduleError, match="selections do not cross"):
        from_freq(C4, 2, engine="vllm-ascend-v4", stages=(0, 25))
    with pytest.raises(ScheduleError, match="nothing is known about pipeline stages"):
        from_freq(C4, 2, engine="ascend-sglang-v4", stages=(0, 23))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("thudm-patch", "always full"),
        ("sglang", "computes where no earlier selection is handed in"),
        ("vllm", "always builds an indexer"),
        ("vllm-ascend", "keeps its indexer"),
        ("vllm-ascend-v4", "left out"),
        ("vllm-v4-pr51209", "trailing compress_ratios are ignored"),
        ("ascend-sglang-v4", "NextN layers are excluded"),
        ("transformers", "not instantiated"),
    ],
)
def test_what_becomes_of_mtp_layers_is_said(engine, words):
    layers = C4 if DIALECTS[engine].space == "c4" else 61
    exported = export(from_freq(layers, 2, engine=engine), engine=engine)
    assert any(note.startswith("MTP layers") and words in note for note in exported.notes)
    assert any(note.startswith("indexer of a shared layer") for note in exported.notes)


# -- export -------------------------------------------------------------------------------------


def test_export_writes_overrides_and_launch_line():
    schedule = from_freq(61, 4, engine="vllm")
    exported = export(schedule, engine="vllm", model="deepseek-ai/DeepSeek-V3.2")
    assert exported.overrides == {"use_index_cache": True, "index_topk_pattern": schedule.pattern}
    assert exported.launch == (
        "vllm serve deepseek-ai/DeepSeek-V3.2 --hf-overrides"
        f' \'{{"use_index_cache": true, "index_topk_pattern": "{schedule.pattern}"}}\''
    )
    exported = export(schedule, engine="sglang==0.5.19", model="zai-org/GLM-5")
    assert exported.launch == (
        "python -m sglang.launch_server --model-path zai-org/GLM-5 --json-model-override-args"
        f' \'{{"index_topk_pattern": "{schedule.pattern}"}}\''
    )
    assert json.loads(exported.json) == exported.overrides


def test_export_of_the_v4_run_of_the_first_seed():
    schedule = from_freq(C4, 2, engine="ascend-sglang-v4")
    exported = export(schedule, engine="ascend-sglang-v4")
    assert exported.overrides == {"use_index_cache": True, "index_topk_pattern": "FS" * 10 + "F"}
    frequency = {"use_index_cache": True, "index_topk_freq": 2}  # as that run was started
    assert read(frequency, engine="ascend-sglang-v4", layers=C4).schedule == schedule
    assert read(frequency, engine="vllm-ascend-v4", layers=C4).schedule != schedule


def test_transformers_gets_types_and_pattern_together():
    exported = export(ReuseSchedule.from_pattern("FSFS"), engine="transformers", model="m")
    assert exported.overrides == {
        "index_topk_pattern": "FSFS",
        "indexer_types": ["full", "shared", "full", "shared"],
    }
    types = "['full', 'shared', 'full', 'shared']"
    assert exported.launch == f"AutoModelForCausalLM.from_pretrained('m', indexer_types={types})"


def test_megatron_and_prime_rl_have_their_own_settings():
    glm52 = export(GLM52, engine="megatron")
    assert glm52.overrides == {"dsa_indexer_topk_freq": 4, "dsa_indexer_skip_topk_offset": 3}
    assert glm52.launch == "--dsa-indexer-topk-freq 4 --dsa-indexer-skip-topk-offset 3"
    exported = export(HALF, engine="prime-rl")
    assert exported.launch == '[trainer.model.index_cache]\ntopk_pattern = "FSFSFS"'
    with pytest.raises(ScheduleError, match="megatron knows frequencies only, and none keeps"):
        export(published_pattern("glm-5-1/4").schedule, engine="megatron")


@pytest.mark.parametrize("engine", [n for n, row in DIALECTS.items() if row.launch and row.reads])
def test_lags_and_source_maps_are_refused_by_name(engine):
    layers = C4 if engine in V4 else 61
    with pytest.raises(ScheduleError, match=f"{engine} cannot express a lag .k = 1."):
        export(ReuseSchedule.uniform(layers, lag=1), engine=engine)
    tail = len(C4) if engine in V4 else 61
    sources = ReuseSchedule.from_sources([0, 1, 0, 1, *range(4, tail)], layers=layers)
    with pytest.raises(ScheduleError, match=f"{engine} cannot express a source per layer"):
        export(sources, engine=engine)


def test_layers_of_another_kind_are_refused():
    with pytest.raises(ScheduleError, match="vllm counts all layers, this schedule the compressed"):
        export(ReuseSchedule.uniform(C4, "1/2"), engine="vllm")
    with pytest.raises(ScheduleError, match="counts compressed-sparse layers, this schedule all"):
        export(ReuseSchedule.uniform(61, "1/2"), engine="ascend-sglang-v4")
    with pytest.raises(ScheduleError, match="engine sglnag: not known"):
        export(HALF, engine="sglnag")


def test_glm52_baseline_is_its_native_schedule():
    exported = export(GLM52, engine="sglang", native=GLM52)
    assert exported.overrides == {}
    assert any(
        "the baseline of this checkpoint is its own schedule FFFSSS" in n for n in exported.notes
    )
    with pytest.raises(ScheduleError, match="layer 3 has no indexer in this checkpoint"):
        export(ReuseSchedule.uniform(78), engine="sglang", native=GLM52)
    sparser = GLM52.pattern[:6] + "S" + GLM52.pattern[7:]
    exported = export(ReuseSchedule.from_pattern(sparser), engine="sglang-0.5.19", native=GLM52)
    assert exported.overrides == {"index_topk_pattern": sparser}
    exported = export(ReuseSchedule.from_pattern(sparser), engine="sglang", native=GLM52)
    types = ["full" if letter == "F" else "shared" for letter in sparser]
    assert exported.overrides == {"index_topk_pattern": sparser, "indexer_types": types}


@pytest.mark.parametrize("engine", ["sglang", "vllm", "vllm-ascend", "transformers"])
def test_glm52_configuration_is_read_as_native(engine):
    settings = {"index_topk_freq": 4, "index_skip_topk_offset": 3, "num_hidden_layers": 78}
    assert read(settings, engine=engine, layers=78).schedule == GLM52


def test_off_is_not_frequency_1():
    plain = ReuseSchedule.uniform(C4)
    off = export(plain, engine="ascend-sglang-v4")
    on = export(plain, engine="ascend-sglang-v4", enabled=True)
    assert off.overrides == {}
    assert on.overrides == {"use_index_cache": True, "index_topk_freq": 1}
    assert any("another code path than off" in note for note in on.notes)
    with pytest.raises(ScheduleError, match="reuse cannot be off"):
        export(ReuseSchedule.uniform(C4, "1/2"), engine="ascend-sglang-v4", enabled=False)


WRITABLE = [(name, space) for space in ("layers", "c4") for name in engines_for(space)]
PATTERNED = [(n, s) for n, s in WRITABLE if "pattern" in DIALECTS[n].reads]


@pytest.mark.parametrize(("engine", "space"), PATTERNED)
@settings(deadline=None, max_examples=40)
@given(tail=st.text("FS", min_size=1, max_size=70))
def test_export_and_read_are_inverse(engine, space, tail):
    letters = "F" + tail
    ids = range(len(letters)) if space == "layers" else range(2, 2 * len(letters) + 2, 2)
    schedule = ReuseSchedule.from_pattern(letters, layers=ids)
    exported = export(schedule, engine=engine, enabled=True)
    assert read(exported.overrides, engine=engine, layers=ids).schedule == schedule
    assert read(json.loads(exported.json), engine=engine, layers=ids).schedule == schedule


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 9), st.integers(3, 80))
def test_what_megatron_can_say_comes_back(freq, offset, layers):
    schedule = from_freq(layers, freq, engine="megatron", offset=offset)
    exported = export(schedule, engine="megatron", enabled=True)
    assert read(exported.overrides, engine="megatron", layers=layers).schedule == schedule


# -- published patterns -------------------------------------------------------------------------


def test_published_patterns_have_provenance_and_their_known_counts():
    counts = {name: (len(p.pattern), p.pattern.count("F")) for name, p in published().items()}
    assert counts == {
        "indexcache-30b-1/2": (47, 24),
        "indexcache-30b-1/4": (47, 12),
        "indexcache-30b-1/8": (47, 7),
        "glm-5-1/2": (78, 40),
        "glm-5-1/4": (78, 22),
        "v3.2-documented": (61, 32),
        "glm-5.2-native": (78, 21),
    }
    assert all(p.origin and p.model for p in published().values())


def test_the_v32_pattern_is_a_prefix_of_glm5s():
    documented = published_pattern("v3.2-documented")
    assert published_pattern("glm-5-1/2").pattern.startswith(documented.pattern)
    assert "never searched for DeepSeek-V3.2" in documented.caution


def test_searched_patterns_are_nested():
    for sparse, dense in (
        ("indexcache-30b-1/8", "indexcache-30b-1/4"),
        ("indexcache-30b-1/4", "indexcache-30b-1/2"),
        ("glm-5-1/4", "glm-5-1/2"),
    ):
        inner, outer = (published_pattern(n).schedule.full_layers for n in (sparse, dense))
        assert set(inner) < set(outer)


def test_longest_shared_runs():
    runs = {n: max(map(len, re.findall("S+", p.pattern))) for n, p in published().items()}
    assert runs["indexcache-30b-1/4"] == runs["indexcache-30b-1/8"] == 9
    assert (runs["glm-5-1/2"], runs["glm-5-1/4"], runs["glm-5.2-native"]) == (6, 8, 3)


def test_glm52_native_is_the_rule_of_its_configuration():
    assert published_pattern("glm-5.2-native").schedule == GLM52
    with pytest.raises(ScheduleError, match="published pattern glm-6: not known"):
        published_pattern("glm-6")


def test_transformers_really_runs_what_was_exported(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    from evalkit.dsa import apply_schedule
    from tests.dsa.tiny import build, tokens

    model = build("glm_moe_dsa")
    model.save_pretrained(tmp_path)
    schedule = ReuseSchedule.from_pattern("FFSSFSFS")
    exported = export(schedule, engine="transformers", model=str(tmp_path))
    direct = eval(exported.launch, {"AutoModelForCausalLM": AutoModelForCausalLM}).eval()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | exported.overrides))
    written = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = tokens(1, 40)
    with torch.no_grad():
        with apply_schedule(model, schedule):
            expected = model(ids).logits
        assert torch.equal(direct(ids).logits, expected)
        assert torch.equal(written(ids).logits, expected)
        assert not torch.equal(model(ids).logits, expected)
    config = json.loads(path.read_text())
    assert read(config, engine="transformers", layers=8).schedule == schedule
