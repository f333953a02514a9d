"""`distill retrofit`: what it writes, what it prints, what it refuses in one line."""

import json
import shutil
import struct
import sys

import pytest
from transformers import AutoTokenizer

from distill.cli.main import main
from tests.distill.retrofit.dense_models import save_dense
from tests.paths import TINY_MODEL


def distill(*args):
    """Exit code of `distill ARGS`."""
    old, sys.argv = sys.argv, ["distill", *map(str, args)]
    try:
        main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    finally:
        sys.argv = old
    return 0


@pytest.fixture
def base(tmp_path):
    directory = tmp_path / "base-model"
    save_dense(directory, vocab_size=640)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY_MODEL / name, directory / name)
    (directory / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# base\n")
    return directory


def test_the_directory_has_weights_tokenizer_configuration_and_a_card(base, tmp_path, capsys):
    out, text = tmp_path / "dsa", tmp_path / "text.txt"
    text.write_text("The special magic number for calm-badge is 1234. " * 4)
    assert distill("retrofit", base, "--out", out, "--topk", 8, "--check", text) == 0
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["index_topk"], config["index_n_heads"]) == (
        "deepseek_v32",
        8,
        4,
    )
    weights = out / "model.safetensors"
    assert weights.stat().st_mode == (out / "config.json").stat().st_mode
    ids = AutoTokenizer.from_pretrained(base)("calm-badge").input_ids
    assert AutoTokenizer.from_pretrained(out)("calm-badge").input_ids == ids
    card = (out / "README.md").read_text()
    assert "base_model: base-model\nlicense: cc-by-4.0\n" in card
    assert str(tmp_path) not in card + (out / "config.json").read_text()
    printed = capsys.readouterr().out
    assert "index head i = attention head i, 4 heads of 16 dims" in printed
    assert "same argmax at 100.00%" in printed
    assert "index_topk 8: KL " in printed
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_merged_index_heads_are_listed(base, tmp_path, capsys):
    arguments = ("--out", tmp_path / "dsa", "--index-heads", 2, "--family", "glm_moe_dsa")
    assert distill("retrofit", base, *arguments) == 0
    assert "index head 1 = attention heads 1, 3" in capsys.readouterr().out


def test_an_output_directory_in_use_is_refused_and_left_alone(base, tmp_path, capsys):
    out = tmp_path / "dsa"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    assert distill("retrofit", base, "--out", out) == 2
    assert "not empty; name another --out" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_a_failed_write_leaves_nothing(base, tmp_path, capsys, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distill.retrofit.convert.card", full)
    out = tmp_path / "dsa"
    assert distill("retrofit", base, "--out", out) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base-model"]


REFUSED = {
    "qk-norm": ("qwen3", {}, "qwen3 has no exact DSA form: it has qk-norm"),
    "soft caps": ("gemma2", {"sliding_window": 8}, "it has soft caps and local attention windows"),
    "windows": ("mistral", {"sliding_window": 16}, "local attention windows of 16 tokens"),
    "windows of Qwen2": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        "local attention windows of 16 tokens",
    ),
    "biases of the feed-forward": ("llama", {"mlp_bias": True}, "biases of the feed-forward"),
    "dynamic NTK": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        "rope type dynamic: its frequencies cannot be written as a table",
    ),
    "another architecture": ("gpt_neox", {}, "LayerNorm and rotates a part of each head"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_exact_is_refused_by_name_in_one_line(tmp_path, capsys, case):
    model_type, config, message = REFUSED[case]
    save_dense(tmp_path / "base", model_type, **config)
    assert distill("retrofit", tmp_path / "base", "--out", tmp_path / "dsa") == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("distill: ") and message in error
    assert not (tmp_path / "dsa").exists()


def change_config(directory, **fields):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised weights (fp8)"),
        (
            {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 0.5,
                }
            },
            "partial rotary positions",
        ),
        ({"num_hidden_layers": 1}, "unexpected keys, first model.layers.1."),
        ({"num_attention_heads": 5}, "is not a multiple of the number of attention heads"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps of 0"),
        ({"model_type": "deepseek_v32"}, "its layers are not known to be those of Llama"),
    ],
)
def test_a_configuration_that_is_not_exact_is_refused(base, tmp_path, capsys, fields, message):
    change_config(base, **fields)
    assert distill("retrofit", base, "--out", tmp_path / "dsa") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--family", "hy_v4"], "family hy_v4: use deepseek_v32 or glm_moe_dsa"),
        (["--index-heads", "5"], "the model has 4 attention heads to copy from"),
        (["--format-only", "--topk", "8"], "--format-only excludes --index-heads and --topk"),
        (["--check", "absent.txt"], "--check absent.txt: no such file"),
    ],
)
def test_options_that_do_not_fit_are_refused(base, tmp_path, capsys, options, message):
    assert distill("retrofit", base, "--out", tmp_path / "dsa", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "dsa").exists()


def test_a_damaged_gguf_file_is_one_line(tmp_path, capsys):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + b"\1")
    assert distill("retrofit", tmp_path / "cut.gguf", "--out", tmp_path / "dsa") == 2
    assert "cut.gguf: cannot be loaded" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["---\nlicense: [open\n---\n", "# no front matter\n", ""])
def test_a_card_that_names_no_licence_is_no_obstacle(base, tmp_path, text):
    (base / "README.md").write_text(text)
    assert distill("retrofit", base, "--out", tmp_path / "dsa") == 0
    assert "license: unknown\n" in (tmp_path / "dsa" / "README.md").read_text()


def test_a_model_that_is_not_there_is_one_line(tmp_path, capsys):
    assert distill("retrofit", tmp_path / "no.gguf", "--out", tmp_path / "dsa") == 2
    assert "no such file" in capsys.readouterr().err
