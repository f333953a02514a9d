"""Servers that close an assistant turn which was to go on, and those that render chats anew."""

from __future__ import annotations

import pytest

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.prompts.renderer import ChatRenderer
from tests.engines.test_openai import answers, loaded
from tests.servers.fake import FakeServer

HEAD, END = 3, 2  # tokens that a template puts before every turn, and behind a finished one


class Templated(FakeServer):
    """Counts as a chat template does; `reads` whether it knows unfinished turns.

    `thought`: tokens of an empty reasoning block that the template puts into every answer.
    """

    def __init__(self, *, reads: bool, thought: int = 0, head: int = HEAD, end: int = END) -> None:
        super().__init__()
        self.reads, self.thought, self.head, self.end = reads, thought, head, end

    def _count(self, body):
        turns = [self.head + len(m["content"]) + self.end for m in body["messages"]]
        if body["messages"][-1]["role"] == "user":
            return sum(turns) + self.head
        unfinished = self.reads and body.get("continue_final_message")
        return sum(turns) + self.thought - (self.end if unfinished else 0)


@pytest.fixture
def prompts(tokenizer):
    render = ChatRenderer(tokenizer).render
    return [
        render(Sample(f"s/{i}", "s", f"q {i}", ("x",), "none", 5, answer_prefix=" It is"))
        for i in range(6)
    ]


def test_a_turn_that_is_closed_stops_the_run_before_the_first_answer(paper_checkpoint, prompts):
    with Templated(reads=False) as server:
        engine = loaded(paper_checkpoint, server.url, api="chat", extra_body={"top_k": 1})
        with pytest.raises(EvalkitError, match="closes the assistant's turn behind the answer"):
            answers(engine, prompts)
    assert len(server.seen) == 3
    assert all(body["max_tokens"] == body["top_k"] == 1 for body in server.seen)


@pytest.mark.parametrize(
    "server",
    [
        {"reads": True},
        {"reads": True, "thought": 4},  # more tokens than prompt and text, and yet it goes on
        {"reads": False, "head": 0, "end": 0},  # nothing tells a finished turn from another
    ],
    ids=str,
)
def test_a_turn_that_goes_on_is_asked_for_once(paper_checkpoint, prompts, server):
    with Templated(**server) as fake:
        engine = loaded(paper_checkpoint, fake.url, api="chat", max_requests=4)
        assert len(answers(engine, prompts[:3])) == 3
        assert len(answers(engine, prompts[3:])) == 3
    assert len(fake.seen) == 3 + 6


def test_prefixes_in_the_users_turn_and_prompts_without_ask_nothing(
    paper_checkpoint, tokenizer, prompts
):
    plain = ChatRenderer(tokenizer).render(Sample("s/0", "s", "hello", ("x",), "none", 5))
    with Templated(reads=False) as server:
        options = {"api": "chat", "max_requests": 1}
        answers(loaded(paper_checkpoint, server.url, **options), [plain])
        answers(loaded(paper_checkpoint, server.url, chat_prefix="user", **options), prompts)
    assert len(server.seen) == 1 + 6


def test_another_template_than_the_checkpoints_is_said_once(paper_checkpoint, tokenizer, caplog):
    def rendered(template):
        tokenizer.chat_template = template
        samples = [Sample(f"s/{i}", "s", "abc", ("x",), "none", 5) for i in range(3)]
        prompts = [ChatRenderer(tokenizer).render(sample) for sample in samples]
        tokenizer.chat_template = None
        caplog.clear()
        with Templated(reads=True) as server:
            answers(loaded(paper_checkpoint, server.url, api="chat"), prompts)
        return [r.message for r in caplog.records if "renders chats by another" in r.message]

    (said,) = rendered("<bos>{% for m in messages %}{{ m['content'] }}{% endfor %}")
    assert "the server read 11 tokens where the checkpoint's chat template makes 4" in said
    count = 3 + 2 * HEAD + END
    assert rendered("<pad>" * (count - 3) + "{{ messages[0]['content'] }}") == []
