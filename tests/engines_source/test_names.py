"""Log lines, flags, server fields and metric names that we look for, in the releases' source."""

from __future__ import annotations

import re

import pytest

from evalkit.bench.server_metrics import COUNTERS
from evalkit.config.run import RunConfig
from evalkit.core.recipe import load
from evalkit.engagement.server_info import SGLANG_SETTINGS, VLLM_SETTINGS
from evalkit.engagement.server_logs import formats
from tests.engines_source.releases import everything, versions
from tests.paths import ROOT

pytestmark = pytest.mark.engines

NEWEST = {package: versions(package)[-1] for package in ("sglang", "vllm")}


@pytest.mark.parametrize("line", formats()[1], ids=lambda line: line.name)
def test_log_lines_stand_in_the_releases_they_name_or_are_private(line):
    if line.private_build:
        assert not line.package
        for package, version in NEWEST.items():
            for word in re.findall(
                r"c4_layers|skip_layer_ids|multi-layer indexer", line.pattern.pattern
            ):
                assert word not in everything(package, version)
        return
    if line.kind == "in force":  # our own plugin writes it
        package = ROOT / "evalkit" / "vllm_plugin"
        assert any("evalkit schedule in force [" in p.read_text() for p in package.glob("*.py"))
        return
    assert line.releases
    for version in line.releases:
        text = everything(line.package, version)
        missing = [word for word in line.words if word not in text]
        assert not missing, (version, missing)


def test_fields_of_the_servers_own_report():
    text = everything("sglang", NEWEST["sglang"])
    for name in (*SGLANG_SETTINGS, "json_model_override_args", "model_path"):
        assert re.search(rf"\b{name}\b", text), name
    text = everything("vllm", NEWEST["vllm"])
    assert "speculative_config" in text
    for name in (*VLLM_SETTINGS, "hf_overrides", "vllm_config", "VLLM_SERVER_DEV_MODE"):
        assert re.search(rf"\b{name}\b", text), name


def test_metric_names():
    for name in COUNTERS:
        package, _, rest = name.partition(":")
        text = everything(package, NEWEST[package])
        stem = rest.removesuffix("_total")  # prometheus adds the ending of a counter
        assert f"{package}:{stem}" in text or f":{stem}" in text, name


def test_flags_of_the_serving_recipes():
    for path in sorted((ROOT / "recipes" / "serving").glob("*.toml")):
        for arm in load(path, RunConfig).arms:
            if arm.server is None or arm.server.engine == "custom":
                continue
            package = "vllm" if "vllm" in arm.server.engine else "sglang"
            text = everything(package, NEWEST[package])
            for flag in (word for word in arm.server.flags if word.startswith("--")):
                names = {"--tp": "tp_size", "--dp": "dp_size"}
                name = names.get(flag, flag.removeprefix("--").replace("-", "_"))
                assert re.search(rf"\b{name}\b", text), (path.name, flag)
