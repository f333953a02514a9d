"""RULER's model templates: data, never executed, instead of the tokenizer's chat template."""

import pytest

from evalkit.config.run import PromptConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.recipe import parse
from evalkit.core.types import Sample
from evalkit.data import model_templates
from evalkit.data.sources import LONG_CONTEXT_EVAL, locate
from evalkit.prompts.renderer import ChatRenderer

OWN = {
    "plain": "{task_template}",
    "talk": "<ask>{task_template}</ask><say>",
    "begun": "<s>[{task_template}]",
}
SAMPLE = Sample("t/0", "t", "Count {x}.", ("3",), "ruler_all", 8, answer_prefix=" Answer:")


class Tokenizer:
    """One token a character; <s> is one token."""

    bos_token, bos_token_id = "<s>", 1
    chat_template = "anything"

    def encode(self, text, *, add_special_tokens=True):
        head, text = ([1], text[3:]) if text.startswith("<s>") else ([], text)
        return [1] * add_special_tokens + head + [ord(c) for c in text]

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt):
        return f"<chat>{messages[0]['content']}<reply>"

    def get_vocab(self):
        return {}


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(model_templates, "model_templates", lambda: OWN)


def render(template, **more):
    renderer = ChatRenderer(Tokenizer(), PromptConfig(template=template, **more))
    return renderer, renderer.render(SAMPLE)


@pytest.mark.usefixtures("own")
def test_the_answer_prefix_is_the_start_of_the_assistants_turn():
    _, prompt = render("talk")
    assert prompt.text == "<ask>Count {x}.</ask><say> Answer:"
    _, plain = render("plain", chat="always")
    assert plain.text == "Count {x}. Answer:"


@pytest.mark.usefixtures("own")
def test_bos_is_added_once_whether_the_template_prints_it_or_not():
    for name in ("talk", "begun"):
        renderer, prompt = render(name)
        assert prompt.token_ids[:1] == (1,)
        assert prompt.token_ids[1] != 1
        assert renderer.overhead() == len(prompt.token_ids) - len("Count {x}. Answer:")


@pytest.mark.usefixtures("own")
def test_the_template_is_part_of_the_identity():
    prints = {render(name)[0].fingerprint() for name in OWN}
    prints |= {ChatRenderer(Tokenizer()).fingerprint()}
    prints |= {ChatRenderer(Tokenizer(), PromptConfig(chat="never")).fingerprint()}
    assert len(prints) == 5


@pytest.mark.usefixtures("own")
def test_exempt_samples_have_no_template():
    renderer, _ = render("talk")
    exempt = Sample("t/1", "t", "Next", ("3",), "ruler_all", 8, chat=False)
    assert renderer.render(exempt).text == "Next"


@pytest.mark.usefixtures("own")
def test_mistakes_are_named():
    with pytest.raises(EvalkitError, match=r"unknown model template tolk; did you mean talk\?"):
        render("tolk")
    with pytest.raises(EvalkitError, match="exclude each other"):
        parse({"template": "talk", "chat": "never"}, PromptConfig, "recipe.toml")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("Templates = dict(a=1)", "no literal"),
        ("Templates = {'a': 'no place'}", "without {task_template}"),
        ("Templates = {'a': '{task_template}{task_template}'}", "without {task_template}"),
        ("Templates = {'a': 1}", "without {task_template}"),
        ("Templates = ['{task_template}']", "without {task_template}"),
        ("Other = {}", "no dictionary Templates"),
        ("Templates = {", "no literal"),
    ],
)
def test_another_form_of_the_source_is_refused(source, says):
    with pytest.raises(EvalkitError) as error:
        model_templates.parse(source)
    assert says in str(error.value)


def test_the_source_is_never_executed(tmp_path):
    trap = tmp_path / "ran"
    source = f"open({str(trap)!r}, 'w')\nTemplates = {{'a': '{{task_template}}'}}"
    assert model_templates.parse(source) == {"a": "{task_template}"}
    assert not trap.exists()


def test_the_official_templates():
    try:
        locate(LONG_CONTEXT_EVAL)
    except EvalkitError:
        pytest.skip(f"needs {LONG_CONTEXT_EVAL.file}: neither cached nor to be fetched")
    found = model_templates.model_templates()
    assert found["base"] == "{task_template}"
    assert found["meta-chat"] == "[INST] {task_template} [/INST]"
    assert {"vicuna-chat", "lwm-chat", "command-r-chat", "chatglm-chat", "RWKV"} <= set(found)
    _, prompt = render("meta-chat")
    assert prompt.text == "[INST] Count {x}. [/INST] Answer:"
