"""From a sample to token ids: chat template, answer prefix, special tokens, once and checked."""

from __future__ import annotations

import hashlib

from evalkit.config.run import PromptConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.types import Prompt, Sample
from evalkit.data.model_templates import PLACE, model_template
from evalkit.prompts.token_counter import TokenCounter
from evalkit.prompts.tokenizers import ChatTokenizer, hash_ids, tokenizer_hash

MOST_UNCHECKED = 4096
"""Counts that are remembered until the prompt is rendered."""


class ChatRenderer:
    """Renders samples with one tokenizer under one policy.

    The answer prefix follows the template's generation prompt, so that it is the start of the
    assistant's turn. Special tokens are added exactly once: by the chat template, or by the
    tokenizer when there is none; a doubled BOS is refused. A model template of RULER takes the
    place of the chat template; the tokenizer adds its BOS unless the template begins with it.
    """

    def __init__(self, tokenizer: ChatTokenizer, config: PromptConfig | None = None) -> None:
        config = config or PromptConfig()
        self.tokenizer = tokenizer
        self.template = None if config.template is None else model_template(config.template)
        has_template = bool(self.template or getattr(tokenizer, "chat_template", None))
        if config.chat == "always" and not has_template:
            raise EvalkitError(
                "prompts.chat is always, but the tokenizer has no chat template: use auto or never"
            )
        self.chat = has_template and config.chat != "never"
        self.reasoning_tokens = config.reasoning_tokens
        self._overhead: dict[bool, int] = {}
        self._last: Prompt | None = None
        self._counter = TokenCounter.of(tokenizer)
        self._counted: dict[tuple[str, int], int] = {}

    def render(self, sample: Sample) -> Prompt:
        """The prompt of a sample.

        Raises:
            EvalkitError: the prompt would begin with two BOS tokens.
        """
        # A task that fits its haystack has usually just rendered the sample it returns.
        if self._last is None or self._last.sample != sample:
            self._last = self._render(sample)
        return self._last

    def _render(self, sample: Sample) -> Prompt:
        text, special = self._text(sample)
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=special))
        counted = self._counted.get((sample.id, len(text)), len(ids))
        if counted != len(ids):
            raise EvalkitError(
                f"{sample.id}: the prompt has {len(ids)} tokens and was counted as {counted}:"
                " this tokenizer joins what `evalkit.prompts.token_counter` cuts; please report it"
            )
        bos = getattr(self.tokenizer, "bos_token_id", None)
        if bos is not None and ids[:2] == (bos, bos):
            raise EvalkitError(
                f"{sample.id}: the prompt begins with two BOS tokens (id {bos}): the text or the"
                " template prints one that the tokenizer adds again"
            )
        return Prompt(sample, ids, text, hash_ids(ids), self.reasoning_tokens)

    def count(self, sample: Sample) -> int:
        """Tokens of a sample's prompt, without making them where that can be told exactly.

        `render` checks what was counted here.
        """
        if self._counter is None:
            return len(self.render(sample).token_ids)
        text, special = self._text(sample)
        count = self._counter.count(text, special=special)
        if len(self._counted) > MOST_UNCHECKED:
            self._counted.clear()
        self._counted[sample.id, len(text)] = count
        return count

    def _text(self, sample: Sample) -> tuple[str, bool]:
        """The whole prompt, and whether the tokenizer adds its special tokens."""
        chat = self.chat and sample.chat
        text = self._wrap(sample.text) if chat else sample.text
        # A chat template prints the special tokens itself.
        special = not chat or (self.template is not None and not self._begins_with_bos())
        return text + sample.answer_prefix, special

    def overhead(self, *, chat: bool = True) -> int:
        """Tokens that the template and special tokens add around the text."""
        if chat not in self._overhead:
            probe = Sample("probe", "probe", "x", ("x",), "none", 0, chat=chat)
            plain = len(self.tokenizer.encode("x", add_special_tokens=False))
            self._overhead[chat] = len(self.render(probe).token_ids) - plain
        return self._overhead[chat]

    def fingerprint(self) -> str:
        """sha256 of everything that decides token ids: tokenizer, chat template, policy."""
        digest = hashlib.sha256(tokenizer_hash(self.tokenizer).encode())
        template = getattr(self.tokenizer, "chat_template", None) if self.chat else None
        template = self.template or template
        digest.update(repr((self.chat, template)).encode())
        return digest.hexdigest()

    def _begins_with_bos(self) -> bool:
        bos = getattr(self.tokenizer, "bos_token", None)
        return bool(bos and self.template and self.template.startswith(bos))

    def _wrap(self, text: str) -> str:
        if self.template is not None:
            return self.template.replace(PLACE, text)
        wrapped = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        return str(wrapped)
