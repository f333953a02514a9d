"""Request bodies of prompts, and completions of replies."""

from __future__ import annotations

import time
from dataclasses import replace

from evalkit.config.server import OpenAIServerConfig
from evalkit.core.reasoning import answer_start, still_reasons
from evalkit.core.types import Completion, Prompt
from evalkit.dsa.json_types import JsonObject, JsonValue, as_list, as_object
from evalkit.engines.openai.replies import OVER_LENGTH, SHORT, Refused, Rejected, ending
from evalkit.engines.openai.reply_body import Reply, clean
from evalkit.prompts.tokenizers import ChatTokenizer

HARMLESS = "Hello"


class Wire:
    """Bodies of requests, and completions of replies, for one tokenizer."""

    def __init__(self, config: OpenAIServerConfig, tokenizer: ChatTokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer

    def cost(self, prompt: Prompt) -> int:
        """Tokens that a request holds at the server."""
        return prompt.size

    def seconds(self, prompt: Prompt) -> float:
        """Time that a request may take."""
        more = self.config.timeout_per_1k_tokens * self.cost(prompt) / 1000
        return self.config.timeout + more

    def path(self, prompt: Prompt) -> str:
        """Where the request goes."""
        chat = self.config.api == "chat" and prompt.sample.chat
        return "/chat/completions" if chat else "/completions"

    def body(self, prompt: Prompt, model: str) -> dict[str, JsonValue]:
        """The request.

        Raises:
            Refused: the server would read another prompt.
        """
        body: dict[str, JsonValue] = {
            "model": model,
            "max_tokens": prompt.max_new_tokens,
            "temperature": self.config.temperature,
            **self.config.extra_body,
        }
        if prompt.sample.stop:
            body["stop"] = list(prompt.sample.stop)
        if self.config.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.path(prompt) == "/chat/completions":
            if prompt.template_arguments:
                given = as_object(self.config.extra_body.get("chat_template_kwargs"))
                body["chat_template_kwargs"] = {**given, **prompt.template_arguments}
            return body | self._messages(prompt)
        return body | {"prompt": self._prompt(prompt)}

    def _prompt(self, prompt: Prompt) -> str | list[int]:
        """Token ids, or the text that a server with this tokenizer turns into those ids."""
        ids = list(prompt.token_ids)
        if self.config.api == "ids":
            return ids
        bos = getattr(self.tokenizer, "bos_token", None) or ""
        # Servers add special tokens to text; a text that already begins with BOS would get two.
        for text in (prompt.text, prompt.text.removeprefix(bos)):
            if self.tokenizer.encode(text, add_special_tokens=True) == ids:
                return text
        raise Refused(
            f"{prompt.sample.id}: as text, the server would not read the prompt's tokens (special"
            " tokens would be added twice or not at all): use engine.api = ids"
        )

    def _messages(self, prompt: Prompt) -> dict[str, JsonValue]:
        sample = prompt.sample
        if not sample.answer_prefix:
            return {"messages": [{"role": "user", "content": sample.text}]}
        if self.config.chat_prefix == "user":
            text = sample.text + sample.answer_prefix
            return {"messages": [{"role": "user", "content": text}]}
        if prompt.reasoning_closed:  # SGLang continues within the block, vLLM renders another turn
            raise Refused(
                f"{sample.id}: the chat template opens a reasoning block, and where the answer"
                " prefix then stands is the server's choice: use engine.api = ids (the block is"
                " closed first), engine.chat_prefix = user, or prompts.template_arguments that"
                " switch reasoning off"
            )
        return {
            "messages": [
                {"role": "user", "content": sample.text},
                {"role": "assistant", "content": sample.answer_prefix},
            ],
            "continue_final_message": True,
            "add_generation_prompt": False,
        }

    def harmless(self, prompt: Prompt) -> Prompt:
        """A prompt that nobody can object to, sent in the same form as `prompt`."""
        sample = replace(prompt.sample, text=HARMLESS)
        text = HARMLESS + sample.answer_prefix
        return replace(
            prompt, sample=sample, text=text, token_ids=tuple(self.tokenizer.encode(text))
        )

    def other_template(self, prompt: Prompt, reply: Reply) -> bool:
        """Whether a chat was read with other tokens than the checkpoint's template makes of it."""
        sample = prompt.sample
        rendered = prompt.text != sample.text + sample.answer_prefix
        counted = reply.prompt_tokens not in (None, len(prompt.token_ids))
        return rendered and counted and self.path(prompt) == "/chat/completions"

    def completion(self, prompt: Prompt, reply: Reply) -> Completion:
        """The record of an answer.

        Raises:
            Refused: the server read other tokens than the prompt has.
            Retry, Rejected: it ended for a reason that is not an answer, or read a part only.
        """
        read, sent = reply.prompt_tokens, len(prompt.token_ids)
        if self.path(prompt) == "/completions" and read not in (None, sent):
            if self.config.api == "ids" and read is not None and read < sent:
                raise Rejected(
                    f"{OVER_LENGTH}: the server read {read} of the prompt's {sent} tokens"
                )
            raise Refused(
                f"{prompt.sample.id}: the server read {read} tokens where the prompt has"
                f" {sent}: it adds special tokens (a second BOS?) or has another tokenizer"
            )
        counted = reply.generated
        short = counted is not None and counted < SHORT * prompt.max_new_tokens
        reason = ending(reply.finish_reason, short=short)
        text, reason = self._within_budget(prompt, *_cut(prompt, reply.text, reason))
        return Completion(
            sample_id=prompt.sample.id,
            text=text,
            finish_reason=reason,
            prompt_tokens=sent if read is None else read,
            completion_tokens=self._count(reply.text) if counted is None else counted,
            seconds=time.perf_counter() - reply.sent,
        )

    def error(self, prompt: Prompt, problem: str) -> Completion:
        """The record of a request that came to nothing."""
        size = len(prompt.token_ids)
        return Completion(prompt.sample.id, "", "error", size, 0, 0.0, problem)

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def _within_budget(self, prompt: Prompt, text: str, reason: str) -> tuple[str, str]:
        """The answer cut to its own budget where reasoning left it more; `text` as it came else."""
        if not prompt.reasoning_tokens:
            return text, reason
        if still_reasons(text, opened=prompt.reasoning_opened):
            return text, reason
        start = answer_start(text)
        ids = self.tokenizer.encode(text[start:], add_special_tokens=False)
        if len(ids) <= prompt.sample.max_new_tokens:
            return text, reason
        cut = self.tokenizer.decode(ids[: prompt.sample.max_new_tokens])
        return text[:start] + cut, "length"


def _cut(prompt: Prompt, text: str, reason: str) -> tuple[str, str]:
    """Cut the first stop string, for servers that leave it in."""
    cuts = [text.find(stop) for stop in prompt.sample.stop if stop in text]
    return (text[: min(cuts)], "stop") if cuts else (text, reason)


def served_models(listing: JsonObject) -> list[str]:
    """Model names of a ``/v1/models`` answer."""
    entries = [as_object(entry) for entry in as_list(listing.get("data"))]
    return [clean(str(entry["id"])) for entry in entries if entry.get("id")]
