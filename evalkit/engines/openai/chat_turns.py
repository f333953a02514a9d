"""Whether a server goes on with an unfinished assistant turn, or closes it without a word.

vLLM renders chats of DeepSeek-V3.2, V4 and V4.1 by code of its own, which does not read
`continue_final_message`: the answer prefix becomes a whole turn with its end behind it, and what is
generated then answers nothing. No reply says so; the number of prompt tokens does.
"""

from __future__ import annotations

from dataclasses import replace

from evalkit.core.types import Prompt
from evalkit.dsa.json_types import JsonValue
from evalkit.engines.openai.client import Client
from evalkit.engines.openai.replies import Rejected
from evalkit.engines.openai.wire import HARMLESS, Wire

_BEGUN = "A"


def continues_turns(wire: Wire, prompt: Prompt) -> bool:
    """Whether a prompt is sent as an assistant turn that the server is to go on with."""
    chat = wire.path(prompt) == "/chat/completions"
    return chat and wire.config.chat_prefix == "continue" and bool(prompt.sample.answer_prefix)


async def closes_turns(client: Client, wire: Wire, prompt: Prompt, model: str) -> bool:
    """Whether a server closes the turn that it was asked to go on with.

    It does where the unfinished turn has the tokens of the finished one, and more than the prompt
    and the turn's text. A server that does not count, or rejects one of the three questions, is not
    accused.

    Raises:
        Retry, Refused: as `Client.complete`.
    """

    async def tokens(prefix: str, **more: bool) -> int | None:
        sample = replace(prompt.sample, text=HARMLESS, answer_prefix=prefix, stop=())
        asked = replace(prompt, sample=sample)
        body: dict[str, JsonValue] = {
            **wire.body(asked, model),
            "max_tokens": 1,
            **more,
            "stream": False,
        }
        body.pop("stream_options", None)
        try:
            reply = await client.complete(wire.path(asked), body, wire.seconds(asked))
        except Rejected:
            return None
        return reply.prompt_tokens

    question = await tokens("")
    begun = await tokens(_BEGUN)
    finished = await tokens(_BEGUN, continue_final_message=False)
    if question is None or begun is None or begun != finished:
        return False
    return begun > question + len(wire.tokenizer.encode(_BEGUN, add_special_tokens=False))
