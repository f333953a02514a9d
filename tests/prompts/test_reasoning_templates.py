"""Chat templates that open a reasoning block: prefixes behind it, arguments, broken templates."""

from __future__ import annotations

import json

import pytest

from evalkit.config.run import PromptConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.reasoning import BLOCKS, closing_of
from evalkit.core.records import ItemRow
from evalkit.core.types import Completion, Sample
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.tokenizers import load_tokenizer
from evalkit.run.scoring import ScoringConfig, score_row
from evalkit.run.store import sample_row
from tests.checkpoints import paper
from tests.command import evalkit
from tests.engines.test_openai import answers, loaded
from tests.paths import TINY_MODEL
from tests.servers.fake import FakeServer

TURNS = "{% for m in messages %}<user>{{ m['content'] }}</user>\n{% endfor %}"
OFF = "enable_thinking is defined and not enable_thinking"
# The two forms of an empty block: on lines of its own (Qwen3), in one (GLM-4.5).
LINES = (
    TURNS
    + "{% if add_generation_prompt %}<assistant>\n<think>\n"
    + f"{{% if {OFF} %}}{{{{ '\\n</think>\\n\\n' }}}}{{% endif %}}{{% endif %}}"
)
ONE = (
    TURNS
    + "{% if add_generation_prompt %}<assistant><think>"
    + f"{{% if {OFF} %}}</think>{{% endif %}}{{% endif %}}"
)
NONE = TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}"
FORMS = {"lines": LINES, "one": ONE}
forms = pytest.mark.parametrize("form", FORMS)


def sample(text="Why?", **more):
    return Sample("t/0", "t", text, ("4821",), "needle_exact", 4, **more)


def renderer(template, *, user=False, **config):
    tokenizer = load_tokenizer(TINY_MODEL)
    tokenizer.chat_template = template
    return ChatRenderer(tokenizer, PromptConfig(**config), prefix_in_user_turn=user)


@forms
def test_the_prefix_comes_after_the_block_as_the_template_closes_it(form):
    begun = sample(answer_prefix=" It is")
    closed = renderer(FORMS[form]).render(begun)
    switched_off = renderer(FORMS[form], template_arguments={"enable_thinking": False})
    assert closed.token_ids == switched_off.render(begun).token_ids
    assert closed.text.endswith("</think>\n\n It is" if form == "lines" else "</think> It is")
    assert (closed.reasoning_opened, closed.reasoning_closed) == (False, True)
    assert switched_off.render(begun).reasoning_closed is False  # the template did it


@forms
def test_without_a_prefix_the_block_stays_open_and_has_its_budget(form):
    prompt = renderer(FORMS[form], reasoning_tokens=9).render(sample())
    assert prompt.text.rstrip().endswith("<think>")
    assert (prompt.reasoning_opened, prompt.max_new_tokens) == (True, 13)
    endless = Completion("t/0", "it is 4821 or 4821 or", "length", 5, 13, 0.1)
    item = ItemRow("t/0", "t", "needle_exact", ("4821",), "t/0", {})
    score = score_row(item, sample_row(prompt, endless), ScoringConfig())
    assert (score.score, set(score.flags)) == (0.0, {"unclosed", "length"})


@forms
def test_a_prefix_leaves_no_room_for_reasoning(form):
    with pytest.raises(EvalkitError, match=r"^t: the chat template opens a reasoning block.*= 0"):
        renderer(FORMS[form], reasoning_tokens=9).render(sample(answer_prefix=" It is"))
    off = renderer(
        FORMS[form], reasoning_tokens=9, template_arguments={"enable_thinking": False}
    ).render(sample(answer_prefix=" It is"))
    assert off.reasoning_opened is False


def test_in_the_users_turn_the_prefix_leaves_the_block_alone():
    prompt = renderer(LINES, user=True, reasoning_tokens=9).render(sample(answer_prefix=" It is"))
    assert prompt.text == "<user>Why? It is</user>\n<assistant>\n<think>\n"
    assert (prompt.reasoning_opened, prompt.reasoning_closed) == (True, False)


@pytest.mark.parametrize("template", [NONE, None])
def test_what_the_user_quotes_opens_nothing(template):
    prompt = renderer(template).render(sample("What does this tag mean: <think>"))
    assert (prompt.reasoning_opened, prompt.reasoning_closed) == (False, False)
    closing = renderer(LINES).render(sample("What does </think> mean?"))
    assert closing.reasoning_opened is True


def test_templates_that_open_no_block_render_as_before():
    begun = sample(answer_prefix=" It is")
    assert renderer(NONE).render(begun).text == "<user>Why?</user>\n<assistant> It is"
    own = renderer(NONE).render(sample(answer_prefix="<think> so</think> It is"))
    assert (own.reasoning_opened, own.reasoning_closed) == (False, False)
    assert renderer(None).render(sample(answer_prefix=" <think>")).reasoning_opened is True


def test_what_leaves_a_block_open():
    for opening, closing in BLOCKS:
        assert closing_of(f"<assistant>{opening}") == closing
        assert closing_of(f"<assistant>{opening}\n") == f"\n{closing}\n\n"
        assert closing_of(f"{opening}a{closing}b{opening}") == closing
        assert closing_of(f"{opening}{closing}") == ""
        assert closing_of(closing) == ""
    assert closing_of("") == ""
    assert closing_of("<think>[THINK]") == "[/THINK]"  # what was opened last is closed first


@pytest.mark.parametrize(("opening", "closing"), BLOCKS)
def test_every_known_block_is_closed_before_a_prefix(opening, closing):
    template = (
        TURNS + f"{{% if add_generation_prompt %}}<assistant>{{{{ {opening!r} }}}}{{% endif %}}"
    )
    begun = renderer(template).render(sample(answer_prefix=" It is"))
    assert begun.text.endswith(f"<assistant>{opening}{closing} It is")
    assert renderer(template, reasoning_tokens=9).render(sample()).reasoning_opened is True


def test_of_a_block_of_another_form_nothing_is_guessed():
    template = TURNS + "{% if add_generation_prompt %}<assistant><ponder>{% endif %}"
    begun = renderer(template).render(sample(answer_prefix=" It is"))
    assert begun.text.endswith("<assistant><ponder> It is")
    assert (begun.reasoning_opened, begun.reasoning_closed) == (False, False)


# -- arguments -------------------------------------------------------------------------------------


def test_arguments_are_part_of_what_a_prompt_is():
    plain, off = renderer(ONE), renderer(ONE, template_arguments={"enable_thinking": False})
    on = renderer(ONE, template_arguments={"enable_thinking": True})
    assert len({r.fingerprint() for r in (plain, off, on)}) == 3
    assert plain.fingerprint() == renderer(ONE, template_arguments={}).fingerprint()
    assert off.render(sample()).sha256 != on.render(sample()).sha256
    assert off.render(sample()).template_arguments == {"enable_thinking": False}
    assert off.render(sample(chat=False)).template_arguments == {}
    assert renderer(ONE, user=True).fingerprint() != plain.fingerprint()


def test_arguments_that_nothing_reads_are_refused():
    with pytest.raises(EvalkitError, match="not read enable_thinkng; did you mean enable_thinking"):
        renderer(ONE, template_arguments={"enable_thinkng": False})
    with pytest.raises(EvalkitError, match="no chat template that takes them"):
        renderer(None, template_arguments={"enable_thinking": False})
    for more in ({"chat": "never"}, {"template": "meta-chat"}):
        with pytest.raises(ValueError, match="are for the tokenizer's chat template"):
            PromptConfig(template_arguments={"enable_thinking": False}, **more)
    with pytest.raises(ValueError, match="messages is not yours to set"):
        PromptConfig(template_arguments={"messages": []})


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% if %}", "cannot be rendered: "),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "cannot be rendered: "),
    ],
)
def test_a_broken_template_is_one_line(template, says):
    with pytest.raises(EvalkitError, match=says) as caught:
        renderer(template).render(sample())
    assert "\n" not in str(caught.value)


# -- servers ---------------------------------------------------------------------------------------


def test_servers_that_render_are_given_the_arguments(tmp_path):
    model = paper(tmp_path / "model")
    off = renderer(ONE, template_arguments={"enable_thinking": False})
    prompts = [off.render(sample(answer_prefix=" It is"))]
    with FakeServer(tokenizer=off.tokenizer) as server:
        extra = {"chat_template_kwargs": {"enable_thinking": True, "language": "en"}}
        engine = loaded(model, server.url, api="chat", extra_body=extra)
        assert answers(engine, prompts)["t/0"].error is None
        given = {"enable_thinking": False, "language": "en"}
        assert all(body["chat_template_kwargs"] == given for body in server.seen)
        asked = len(server.seen)  # the prompt, and before it what becomes of an unfinished turn
        answers(loaded(model, server.url), prompts)
        (body,) = server.seen[asked:]
        assert "chat_template_kwargs" not in body
        assert body["prompt"] == list(prompts[0].token_ids)


def test_a_prefix_whose_place_is_the_servers_choice_is_refused(tmp_path):
    model = paper(tmp_path / "model")
    thinking = renderer(LINES)
    with FakeServer(tokenizer=thinking.tokenizer) as server:
        prompts = [thinking.render(sample(answer_prefix=" It is"))]
        with pytest.raises(
            EvalkitError, match=r"t/0: the chat template opens a reasoning block.*ids"
        ):
            answers(loaded(model, server.url, api="chat"), prompts)
        assert server.seen == []
        assert answers(loaded(model, server.url, api="ids"), prompts)["t/0"].error is None


# -- the command -----------------------------------------------------------------------------------

RECIPE = """
model = "{model}"
[engine]
kind = "oracle"
[prompts]
{prompts}
[[tasks]]
kind = "needle"
lengths = [256]
depths = [50]
repeats = 2
haystacks = 2
value_digits = 4
key_adjectives = ["brave", "calm"]
key_nouns = ["apple", "arrow"]
max_new_tokens = 6
[[arms]]
name = "baseline"
"""


@pytest.fixture
def run(tmp_path, capsys):
    """Run with a template and a prompts section; exit code and what went to stderr."""
    model = paper(tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())

    def command(template, prompts=""):
        (model / "tokenizer_config.json").write_text(
            json.dumps(config | {"chat_template": template})
        )
        path = tmp_path / "recipe.toml"
        path.write_text(RECIPE.format(model=model, prompts=prompts), encoding="utf-8")
        code = evalkit("run", path, "--out", tmp_path / "run")
        return code, capsys.readouterr().err

    return command


def test_arguments_are_recorded_and_bind_the_directory(run, tmp_path):
    off = "template_arguments = { enable_thinking = false }"
    assert run(ONE, off)[0] == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["recipe"]["prompts"]["template_arguments"] == {"enable_thinking": False}
    assert record["identity"]["prompts"]["template_arguments"] == {"enable_thinking": False}
    assert run(ONE, off)[0] == 0
    code, said = run(ONE, "template_arguments = { enable_thinking = true }")
    assert code == 2
    assert "enable_thinking" in said


@pytest.mark.parametrize(
    ("template", "prompts", "says"),
    [
        ("{% if %}", "", "chat template cannot be rendered"),
        (ONE, "reasoning_tokens = 5", "needle@256: the chat template opens a reasoning block"),
        (ONE, "template_arguments = { enable_thinkin = true }", "did you mean enable_thinking?"),
    ],
)
def test_what_cannot_be_rendered_is_one_line(run, template, prompts, says):
    code, said = run(template, prompts)
    assert code == 2
    assert says in " ".join(said.split())
    assert "Traceback" not in said
