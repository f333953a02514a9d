"""From a sample to token ids: chat template, answer prefix, special tokens, once and checked."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from functools import cached_property

from evalkit.config.run import PromptConfig
from evalkit.core.errors import EvalkitError, in_one_line
from evalkit.core.reasoning import closing_of
from evalkit.core.types import Prompt, Sample
from evalkit.data.model_templates import PLACE, model_template
from evalkit.prompts.token_counter import TokenCounter
from evalkit.prompts.tokenizers import ChatTokenizer, hash_ids, tokenizer_hash

MOST_UNCHECKED = 4096
"""Counts that are remembered until the prompt is rendered."""

_USER_TURN = "USER-TURN"
"""Stands for the user's text where it is asked what the template puts behind it."""


class ChatRenderer:
    """Renders samples with one tokenizer under one policy.

    The answer prefix follows the template's generation prompt, so that it is the start of the
    assistant's turn. Special tokens are added exactly once: by the chat template, or by the
    tokenizer when there is none; a doubled BOS is refused. A model template of RULER takes the
    place of the chat template; the tokenizer adds its BOS unless the template begins with it.

    Where the template opens a reasoning block, the block is closed before an answer prefix: within
    it the prefix, and any answer behind it, would be a thought.

    Args:
        tokenizer: of the model.
        config: the policy.
        prefix_in_user_turn: the answer prefix ends the user's turn, for servers that are sent
            turns instead of prompts.

    Raises:
        EvalkitError: the tokenizer has no such template, or it does not read an argument.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        config: PromptConfig | None = None,
        *,
        prefix_in_user_turn: bool = False,
    ) -> None:
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
        self.prefix_in_user_turn = prefix_in_user_turn
        self.template_arguments = config.template_arguments or {}
        self._check_arguments()
        self._overhead: dict[bool, int] = {}
        self._last: Prompt | None = None
        self._counter = TokenCounter.of(tokenizer)
        self._counted: dict[tuple[str, int], int] = {}

    def render(self, sample: Sample) -> Prompt:
        """The prompt of a sample.

        Raises:
            EvalkitError: the prompt would begin with two BOS tokens, the template cannot be
                rendered, or an answer prefix would leave no room for reasoning.
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
        chat = self.chat and sample.chat
        turn = self._closing(sample) + ("" if self.prefix_in_user_turn else sample.answer_prefix)
        return Prompt(
            sample,
            ids,
            text,
            hash_ids(ids),
            self.reasoning_tokens,
            reasoning_opened=bool(closing_of(self._turn + turn if chat else turn)),
            reasoning_closed=bool(self._closing(sample)),
            template_arguments=self.template_arguments if chat else {},
        )

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
        # A chat template prints the special tokens itself.
        special = not chat or (self.template is not None and not self._begins_with_bos())
        if not chat:
            return sample.text + sample.answer_prefix, special
        if self.prefix_in_user_turn:
            return self._wrap(sample.text + sample.answer_prefix), special
        return self._wrap(sample.text) + self._closing(sample) + sample.answer_prefix, special

    def _closing(self, sample: Sample) -> str:
        """What closes the template's reasoning block before the answer prefix; mostly ""."""
        if not (self.chat and sample.chat and sample.answer_prefix) or self.prefix_in_user_turn:
            return ""
        if not closing_of(self._turn + sample.answer_prefix):
            return ""
        if self.reasoning_tokens:
            raise EvalkitError(
                f"{sample.task}: the chat template opens a reasoning block, but the answer prefix"
                " of this task begins the answer: set prompts.reasoning_tokens = 0 (the block is"
                " then closed before the prefix), or leave the task out"
            )
        return closing_of(self._turn)

    @cached_property
    def _turn(self) -> str:
        """What the template puts behind the user's text: the head of the assistant's turn."""
        return self._wrap(_USER_TURN).rpartition(_USER_TURN)[2]

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
        if self.template_arguments or self.prefix_in_user_turn:
            more = [self.template_arguments, self.prefix_in_user_turn]
            digest.update(json.dumps(more, sort_keys=True).encode())
        return digest.hexdigest()

    def _begins_with_bos(self) -> bool:
        bos = getattr(self.tokenizer, "bos_token", None)
        return bool(bos and self.template and self.template.startswith(bos))

    def _wrap(self, text: str) -> str:
        if self.template is not None:
            return self.template.replace(PLACE, text)
        try:
            wrapped = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}],
                tokenize=False,
                add_generation_prompt=True,
                **self.template_arguments,
            )
        except Exception as error:  # whatever a template makes Jinja, or itself, raise
            raise EvalkitError(
                f"the tokenizer's chat template cannot be rendered: {in_one_line(error)}; mend it,"
                " or set prompts.chat = never or prompts.template"
            ) from error
        return str(wrapped)

    def _check_arguments(self) -> None:
        """A template takes any argument, and passes over those that it does not read."""
        template = getattr(self.tokenizer, "chat_template", None)
        if self.template_arguments and not template:
            raise EvalkitError(
                "prompts.template_arguments: the tokenizer has no chat template that takes them"
            )
        words = set(re.findall(r"\w+", str(template)))
        for name in self.template_arguments:
            if name not in words:
                near = difflib.get_close_matches(name, words, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise EvalkitError(
                    f"prompts.template_arguments: the chat template does not read {name}{hint}"
                )
