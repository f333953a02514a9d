"""Every rule of the table beside the engine's own code, setting by setting."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from evalkit.dsa import ScheduleError, layout
from evalkit.dsa.engine_config.dialects import DIALECTS
from evalkit.dsa.engine_config.export import export, read
from evalkit.dsa.engine_config.published_patterns import published
from evalkit.dsa.engine_config.versions import choose
from tests.engines_source import rules
from tests.engines_source.releases import FAMILIES, RELEASES, everything, sources, versions

pytestmark = pytest.mark.engines

SGLANG, VLLM, ASCEND = versions("sglang"), versions("vllm"), versions("vllm-ascend")
V32_FILES = ("vllm/model_executor/models/deepseek_v2.py", "vllm/models/deepseek_v32/attention.py")
MODELS = ("deepseek_v32", "glm_moe_dsa")
UNSET = object()
OFFSETS = (UNSET, *range(-1, 5))


def theirs(rule, apply, config, overrides, layers):
    """Letters that the engine runs; None where it fails, or shares its first layer."""
    try:
        made = rules.config_object(config)
        apply(made, overrides)
        letters = "".join("S" if rule(made, layer) else "F" for layer in range(layers))
    except (AssertionError, TypeError, ValueError, KeyError, ZeroDivisionError):
        return None
    return letters if letters.startswith("F") else None


def ours(engine, config, overrides, layers):
    """Letters that the table says; None where it refuses."""
    try:
        return read(config, engine=engine, layers=layers, overrides=overrides).schedule.pattern
    except ScheduleError:
        return None


def engines():
    """(engine as users name it, rule, override order) of every release: V3.2 and GLM rules."""
    for version in SGLANG:
        yield f"sglang=={version}", rules.sglang_rule, rules.sglang_overrides, (version,), ""
    for version in VLLM:
        for path in V32_FILES:
            yield f"vllm=={version}", rules.block_rule, rules.vllm_overrides, (version,), path
    for version in ASCEND:
        path = "vllm_ascend/patch/worker/patch_deepseek_v2.py"
        yield f"vllm-ascend=={version}", rules.block_rule, rules.vllm_overrides, (version,), path


ENGINES = list(engines())
IDS = [f"{engine} {path.rpartition('/')[2]}".strip() for engine, *_, path in ENGINES]


@pytest.fixture(params=ENGINES, ids=IDS)
def engine(request):
    """(name, rule, how overrides are applied)."""
    name, rule, order, (version,), path = request.param
    package = name.partition("==")[0]
    made = rule(package, version, path) if path else rule(version)
    return name, made, order(VLLM[0] if package == "vllm-ascend" else version)


def agree(engine, model_type, config, overrides, layers):
    name, rule, apply = engine
    config = {"model_type": model_type, "num_hidden_layers": layers, **config}
    engine_runs = theirs(rule, apply, config, overrides, layers)
    table_says = ours(choose(name, model_type=model_type).name, config, overrides, layers)
    assert engine_runs == table_says, (name, config, overrides)


@pytest.mark.parametrize("model_type", MODELS)
def test_frequencies_and_offsets(engine, model_type, count):
    """Layers 2 … 80, frequencies 1 … 16, offsets −1 … 4 and none, as overrides."""
    done = 0
    for layers in range(2, 81):
        for freq, offset in itertools.product(range(1, 17), OFFSETS):
            overrides = {"index_topk_freq": freq}
            overrides |= {} if offset is UNSET else {"index_skip_topk_offset": offset}
            agree(engine, model_type, {}, overrides, layers)
            done += 1
    count(engine[0], done)


@pytest.mark.parametrize("model_type", MODELS)
def test_frequencies_and_offsets_of_config_json(engine, model_type, count):
    """The same fields, written in config.json, where the configuration class reads them."""
    done = 0
    for layers, freq, offset in itertools.product((2, 5, 61, 78), range(1, 17), OFFSETS):
        config = {"index_topk_freq": freq}
        config |= {} if offset is UNSET else {"index_skip_topk_offset": offset}
        agree(engine, model_type, config, {}, layers)
        done += 1
    count(engine[0], done)


@pytest.mark.parametrize("model_type", MODELS)
def test_patterns_of_every_kind(engine, model_type, count):
    """All patterns of 1 … 8 letters on 6 layers: too short, exact, too long, shared at first."""
    done = 0
    for length in range(1, 9):
        for letters in itertools.product("FS", repeat=length):
            pattern = "".join(letters)
            agree(engine, model_type, {}, {"index_topk_pattern": pattern}, 6)
            done += 1
    count(engine[0], done)


FIELDS = {
    "indexer_types": (UNSET, None, ["full", "full", "shared", "shared", "shared"]),
    "cli_factor": (UNSET, None, 1, 3),
    "index_topk_pattern": (UNSET, None, "FSSSF"),
    "index_topk_freq": (UNSET, None, 2),
    "index_skip_topk_offset": (UNSET, None, 3),
}


def choices(values):
    for chosen in itertools.product(*values.values()):
        yield {k: v for k, v in zip(values, chosen, strict=True) if v is not UNSET}


@pytest.mark.parametrize("model_type", MODELS)
def test_precedence_of_all_fields(engine, model_type, count):
    """Every field absent, null or set, in config.json and in the overrides, all combinations."""
    written = {name: (values[0], values[-1]) for name, values in FIELDS.items()}
    nulls = {name: values[:2] for name, values in FIELDS.items()}
    configs = [*choices(written), *(c for c in choices(nulls) if c)]
    done = 0
    for config in configs:
        for overrides in choices(FIELDS):
            agree(engine, model_type, config, overrides, 5)
            done += 1
    count(engine[0], done)


@pytest.mark.parametrize("model_type", MODELS)
def test_published_patterns_are_exported_as_they_run(engine, model_type, count):
    """Every published pattern, its prefixes and frequencies: our export, run by the engine."""
    name, rule, apply = engine
    row = choose(name, model_type=model_type).name
    for entry in published().values():
        schedule = entry.schedule
        config = {"model_type": model_type, "num_hidden_layers": len(schedule)}
        made = export(schedule, engine=row, config=config)
        assert theirs(rule, apply, config, made.overrides, len(schedule)) == schedule.pattern
    count(name, len(published()))


@pytest.mark.parametrize("version", VLLM)
def test_hy_v4_of_vllm(version, count):
    engine = (f"vllm=={version}", rules.hy_v4_rule(version), rules.vllm_overrides(version))
    done = 0
    types = FIELDS["indexer_types"][-1]
    values = FIELDS | {"indexer_types": (UNSET, None, types, types[:3])}
    values |= {"index_topk_freq": (UNSET, 2, 4)}
    values |= {"index_skip_topk_offset": (UNSET, 1, 3)}
    for overrides in choices(values):
        agree(engine, "hy_v4", {}, overrides, 5)
        agree(engine, "hy_v4", {"indexer_types": types}, overrides, 5)
        done += 2
    count(engine[0] + " hy_v4", done)


@pytest.mark.parametrize("version", [v for v in SGLANG if v >= "0.5.18"])
def test_longcat_of_sglang(version, count):
    engine = (f"sglang=={version}", rules.sglang_rule(version), rules.sglang_overrides(version))
    done = 0
    for layers, factor in itertools.product(range(2, 81), range(1, 9)):
        agree(engine, "longcat_flash", {"cli_factor": factor}, {}, layers)
        done += 1
    count(engine[0] + " LongCat", done)


@pytest.mark.parametrize("version", ASCEND)
def test_deepseek_v4_of_vllm_ascend(version, count):
    """Frequencies and patterns over the compressed-sparse layers, with the gate on and off."""
    rule, done = rules.ascend_v4_rule(version), 0
    for c4 in range(2, 41):
        ratios = [0, 0] + [4, 128] * c4
        ids = [i for i, ratio in enumerate(ratios) if ratio == 4]
        settings = [{"index_topk_freq": freq} for freq in range(1, 17)]
        settings += [{"index_topk_pattern": p} for p in ("F", "FS", "FSSF" * 12, "F" * 50)]
        for fields, gate in itertools.product(settings, (True, False)):
            overrides = {**fields, "use_index_cache": gate}
            config = SimpleNamespace(compress_ratios=ratios, **overrides)
            letters = "".join("S" if rule(config, layer) else "F" for layer in ids)
            found = read({}, engine="vllm-ascend-v4", layers=ids, overrides=overrides)
            assert found.schedule.pattern == letters, (c4, overrides)
            done += 1
    count(f"vllm-ascend=={version} DeepSeek-V4", done)


@pytest.mark.parametrize(
    ("package", "folder"),
    [("vllm", "vllm/models/deepseek_v4/"), ("sglang", "sglang/srt/models/deepseek_v4")],
)
def test_deepseek_v4_of_vllm_and_sglang_reads_no_reuse_setting(package, folder):
    for version in versions(package):
        if package == "sglang" and version < "0.5.19":
            continue
        texts = [text for path, text in sources(package, version).items() if folder in path]
        assert texts
        for name in ("index_topk_freq", "index_topk_pattern", "use_index_cache"):
            assert not any(name in text for text in texts), (version, name)
        assert choose(f"{package}=={version}", model_type="deepseek_v4").name == f"{package}-v4"


@pytest.mark.parametrize("version", VLLM)
def test_sources_of_deepseek_v41(version, count):
    """Every choice of source layers among eight compressed ones: whose selection a layer reads."""
    rule, done = rules.v41_source_rule(version), 0
    ids = range(2, 10)
    for chosen in itertools.product((False, True), repeat=7):
        sources = [2, *(layer for layer, own in zip(range(3, 10), chosen, strict=True) if own)]
        config = {"model_type": "deepseek_v41", "num_hidden_layers": 10}
        config |= {"compress_ratios": [0, 0] + [2, 1] * 4, "index_source_layer_ids": sources}
        made = layout(config)
        assert made.layer_ids == tuple(ids)
        read_from = [made.layer_ids[source] for source in made.native.source]
        assert read_from == [rule(sources, layer) for layer in ids]
        done += 1
    count(f"vllm=={version} DeepSeek-V4.1", done)


def test_released_megatron_has_none_of_the_flags():
    for version in versions("megatron-core"):
        text = everything("megatron-core", version)
        assert not any(name in text for name in DIALECTS["megatron"].names)
        assert choose(f"megatron=={version}").name == "megatron-0.16"


def test_the_table_names_the_releases_that_were_run():
    """`run_against` of every row is what is pinned here, and nothing pinned is missing."""
    pinned = {(FAMILIES[package], version) for package, version, _ in RELEASES}
    named = {(row.family, version) for row in DIALECTS.values() for version in row.run_against}
    assert named == pinned
