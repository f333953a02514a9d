"""LongBench v2 as cells, one per way to ask: `LongBenchV2Task.sample(i, renderer)`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Followup, Renderer, Sample
from evalkit.data import cards
from evalkit.data.cache import sha256
from evalkit.data.records import refuse
from evalkit.data.sources import of_card
from evalkit.tasks.common import truncate_middle
from evalkit.tasks.common.context_label import context_label
from evalkit.tasks.longbench_v2 import items, prompts
from evalkit.tasks.longbench_v2.config import LongBenchV2Config, Mode


@dataclass(frozen=True)
class LongBenchV2Task:
    """All questions, asked in one way.

    Attributes:
        config: the recipe section.
        mode: the way to ask.
        data: file of the recipe, or None for the pinned one.
        prompts_folder: of the recipe, or None for the pinned prompts.
    """

    config: LongBenchV2Config
    mode: Mode
    data: Path | None
    prompts_folder: Path | None

    @property
    def name(self) -> str:
        """``longbench-v2/<mode>``; of retrieval with the number of pieces."""
        pieces = f"_{self.config.retrieved}" if self.mode == "0shot_rag" else ""
        return f"longbench-v2/{self.mode}{pieces}"

    def __len__(self) -> int:
        """Number of questions; reads the data."""
        return len(self._items)

    @cached_property
    def deviations(self) -> dict[str, Any]:
        """What differs from the official benchmark; reads the data."""
        changes: dict[str, Any] = {}
        if self.data is not None:
            digest = sha256(self.data)
            if digest != of_card(items.CARD, "data").sha256:
                changes["data"] = f"{self.data.name} sha256 {digest[:16]}"
        files = [self.mode, *([prompts.ANSWER] if self.mode == "0shot_cot" else [])]
        other = [name for name in files if not prompts.load(self.prompts_folder, name).official]
        if other:
            digests = [prompts.load(self.prompts_folder, name).sha256[:16] for name in other]
            changes["prompts"] = ", ".join(f"{n} {d}" for n, d in zip(other, digests, strict=True))
        official = cards.load(items.CARD).counts["questions"]
        if len(self) != official:
            changes["samples"] = f"{len(self)} of {official}"
        if self.config.lengths is not None:
            changes["lengths"] = list(self.config.lengths)
        if self._index.problems:
            changes["malformed"] = [str(problem) for problem in self._index.problems]
        return changes | self._budgets()

    def _budgets(self) -> dict[str, int]:
        """Budgets that are not the official ones."""
        default = LongBenchV2Config.model_fields
        keys = ["max_new_tokens"]
        if self.mode == "0shot_cot":
            keys.append("max_reasoning_tokens")
        values = {key: getattr(self.config, key) for key in keys}
        return {key: value for key, value in values.items() if value != default[key].default}

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Question `index`, the middle of its prompt cut out where it is longer than `max_length`.

        Raises:
            EvalkitError: there is no such question, or data or prompts cannot be had.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        item = self._items[index]
        document = self._document(item)
        values = {"DOC": document, "Q": item.question}
        values |= {f"C_{c}": text for c, text in zip(items.LETTERS, item.choices, strict=True)}
        prompt = prompts.load(self.prompts_folder, self.mode).fill(values)
        cut = truncate_middle.joined(prompt, renderer.tokenizer, self.config.limit)
        two_calls = self.mode == "0shot_cot"
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=cut.text,
            references=(item.answer,),
            metric="choice",
            max_new_tokens=(
                self.config.max_reasoning_tokens if two_calls else self.config.max_new_tokens
            ),
            cluster=f"{self.name}/{context_label(self._index.context(item))}",
            meta={
                **item.facets,
                "tokens": cut.tokens,
                "truncated": cut.truncated,
                "_id": item.id,
                "record": item.number,
            },
            followup=self._followup(values) if two_calls else None,
        )

    def _document(self, item: items.Item) -> str:
        if self.mode == "0shot_no_context":
            return ""
        if self.mode == "0shot_rag":
            return self._index.retrieved(item, self.config.retrieved or 0)
        return self._index.context(item)

    def _followup(self, values: dict[str, str]) -> Followup:
        text = prompts.load(self.prompts_folder, prompts.ANSWER).fill(values)
        return Followup(text, self.config.max_new_tokens)

    @property
    def _index(self) -> items.Index:
        index = items.index(items.pinned() if self.data is None else self.data)
        if self.config.malformed == "refuse":
            refuse(index.problems)
        return index

    @cached_property
    def _items(self) -> tuple[items.Item, ...]:
        chosen = self.config.lengths
        return tuple(
            item for item in self._index.items if chosen is None or item.facets["length"] in chosen
        )


def build(config: LongBenchV2Config, base_dir: Path) -> list[LongBenchV2Task]:
    """The cells of a recipe section; nothing is fetched or read yet.

    Raises:
        EvalkitError: a path of the recipe is not there.
    """
    data = _path(config.data, base_dir, "data")
    if data is not None and data.is_dir():
        data = data / "data.json"
        if not data.is_file():
            raise EvalkitError(f"longbench_v2: data = {config.data}: has no data.json ({data})")
    folder = _path(config.prompts, base_dir, "prompts")
    return [LongBenchV2Task(config, mode, data, folder) for mode in config.modes]


def _path(name: str | None, base_dir: Path, key: str) -> Path | None:
    if name is None:
        return None
    path = base_dir / Path(name).expanduser()
    if not path.exists():
        raise EvalkitError(f"longbench_v2: {key} = {name}: no such file or folder ({path})")
    return path
