"""A checkpoint that is one .gguf file: found beside the recipe, hashed, handed to transformers."""

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.model_info import located, model_config, resolve_model, weights_hash
from evalkit.prompts.tokenizers import load_tokenizer


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tide.Q4_1.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_file_is_a_model(file, tmp_path):
    assert resolve_model("./tide.Q4_1.gguf", tmp_path) == str(file)
    assert located(str(file)) == (str(tmp_path), {"gguf_file": "tide.Q4_1.gguf"})
    assert located("lamp/harbour") == ("lamp/harbour", {})
    with pytest.raises(EvalkitError, match=r"ebb\.gguf: no such directory, nor a \.gguf file"):
        resolve_model("./ebb.gguf", tmp_path)


def test_its_hash_is_that_of_the_file(file, tmp_path):
    before = weights_hash(str(file))
    file.write_bytes(b"GGUF2")
    assert weights_hash(str(file)) != before
    assert weights_hash(str(tmp_path)) not in (before, weights_hash(str(file)))


def test_transformers_is_told_the_file(file, tmp_path, monkeypatch):
    import transformers

    asked = []
    for name in ("AutoConfig", "AutoTokenizer"):
        monkeypatch.setattr(
            getattr(transformers, name), "from_pretrained", lambda *a, **k: asked.append((a, k))
        )
    model_config(str(file))
    load_tokenizer(file)
    assert asked == [((str(tmp_path),), {"gguf_file": "tide.Q4_1.gguf"})] * 2


def test_a_file_that_is_none_is_refused_in_one_line(file):
    with pytest.raises(EvalkitError, match="no usable configuration") as error:
        model_config(str(file))
    assert "\n" not in str(error.value)
