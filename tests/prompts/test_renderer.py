"""Rendering: special tokens once, the answer prefix where the assistant begins."""

from __future__ import annotations

import pytest

from evalkit.config.run import PromptConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import hash_ids, load_tokenizer
from tests.paths import TINY_MODEL

TEMPLATE = (
    "{% for m in messages %}<user>{{ m['content'] }}</user>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def sample(**kwargs):
    return Sample("t/0", "t", "The sky is blue.", ("x",), "none", 4, **kwargs)


@pytest.fixture
def tokenizer():
    return load_tokenizer(TINY_MODEL)


def test_plain_text_gets_one_bos_and_the_prefix_follows(tokenizer):
    prompt = ChatRenderer(tokenizer).render(sample(answer_prefix=" The sky is"))
    assert prompt.text == "The sky is blue. The sky is"
    assert prompt.token_ids[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in prompt.token_ids[1:]
    assert tokenizer.decode(prompt.token_ids[1:]) == prompt.text
    assert prompt.sha256 == hash_ids(prompt.token_ids)


def test_answer_prefix_begins_the_assistants_turn(tokenizer):
    tokenizer.chat_template = TEMPLATE
    prompt = ChatRenderer(tokenizer).render(sample(answer_prefix=" It is"))
    assert prompt.text == "<user>The sky is blue.</user><assistant> It is"
    # The template prints no BOS, so there is none: the template decides.
    assert prompt.token_ids[0] != tokenizer.bos_token_id


def test_a_sample_can_be_exempt_from_the_template(tokenizer):
    tokenizer.chat_template = TEMPLATE
    prompt = ChatRenderer(tokenizer).render(sample(chat=False))
    assert prompt.text == "The sky is blue."
    assert prompt.token_ids[0] == tokenizer.bos_token_id


def test_policies(tokenizer):
    with pytest.raises(EvalkitError, match="no chat template"):
        ChatRenderer(tokenizer, PromptConfig(chat="always"))
    tokenizer.chat_template = TEMPLATE
    assert ChatRenderer(tokenizer, PromptConfig(chat="never")).render(sample()).text == (
        "The sky is blue."
    )


def test_a_template_that_prints_bos_is_fine_but_a_double_one_is_refused(tokenizer):
    tokenizer.chat_template = "{{ bos_token }}" + TEMPLATE
    once = ChatRenderer(tokenizer).render(sample()).token_ids
    assert once.count(tokenizer.bos_token_id) == 1
    tokenizer.chat_template = "{{ bos_token }}{{ bos_token }}" + TEMPLATE
    with pytest.raises(EvalkitError, match="two BOS"):
        ChatRenderer(tokenizer).render(sample())
    tokenizer.chat_template = None
    doubled = Sample("t/0", "t", tokenizer.bos_token + "The sky", ("x",), "none", 4)
    with pytest.raises(EvalkitError, match="two BOS"):
        ChatRenderer(tokenizer).render(doubled)


def test_overhead_and_fingerprint(tokenizer):
    renderer = ChatRenderer(tokenizer)
    assert renderer.overhead() == 1
    plain = renderer.fingerprint()
    tokenizer.chat_template = TEMPLATE
    chat = ChatRenderer(tokenizer)
    assert chat.overhead() > 1
    assert chat.overhead(chat=False) == 1
    assert chat.fingerprint() != plain
    assert ChatRenderer(tokenizer, PromptConfig(chat="never")).fingerprint() == plain


def test_rendering_again_gives_the_same_and_an_equal_sample_too(tokenizer):
    renderer = ChatRenderer(tokenizer)
    one = renderer.render(sample())
    other = renderer.render(sample(answer_prefix=" x"))
    assert renderer.render(sample()) == one != other


def test_no_tokenizer_is_one_line(tmp_path):
    with pytest.raises(EvalkitError, match="no usable tokenizer"):
        load_tokenizer(tmp_path)
