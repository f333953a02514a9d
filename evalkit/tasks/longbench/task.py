"""A LongBench task as a cell: `LongBenchTask.sample(i, renderer)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.data.records import refuse
from evalkit.tasks.common import truncate_middle
from evalkit.tasks.common.context_label import context_label
from evalkit.tasks.longbench import prompts, records
from evalkit.tasks.longbench.config import LongBenchConfig
from evalkit.tasks.longbench.facts import BINS, Facts, bin_of, official_count, scoring_meta, tasks
from evalkit.tasks.longbench.suites import cell

T = TypeVar("T")


@dataclass(frozen=True)
class LongBenchTask:
    """One task of LongBench, or one of its length bins in LongBench-E.

    Attributes:
        config: the recipe section.
        task: official name.
        bin: of LongBench-E, or None.
        data: archive or folder of the recipe, or None for the pinned archive.
        prompts_folder: of the recipe, or None for the pinned prompts.
    """

    config: LongBenchConfig
    task: str
    bin: str | None
    data: Path | None
    prompts_folder: Path | None

    @property
    def name(self) -> str:
        """``longbench/<task>`` or ``longbench-e/<task>@<bin>``."""
        return cell(self.task, self.bin)

    @property
    def facts(self) -> Facts:
        """What is fixed about the task."""
        return tasks()[self.task]

    def __len__(self) -> int:
        """Number of samples; reads the data."""
        return len(self._lines)

    @cached_property
    def deviations(self) -> dict[str, Any]:
        """What differs from the official task; reads the data."""
        changes: dict[str, Any] = {}
        file, wording = self._file, self._prompts
        if self.data is not None and not self._is_pinned(self.data):
            changes["data"] = f"{Path(file.where).name} sha256 {file.sha256[:16]}"
        if not wording.official:
            digests = sorted(wording.sha256.items())
            changes["prompts"] = ", ".join(f"{name} {sha[:16]}" for name, sha in digests)
        official = official_count(self.task, self.bin)
        if len(self) != official:
            changes["samples"] = f"{len(self)} of {official}"
        if file.problems:
            changes["malformed"] = [str(problem) for problem in file.problems]
        if self.config.max_new_tokens not in (None, wording.lengths.get(self.task)):
            changes["max_new_tokens"] = self.config.max_new_tokens
        return changes

    def longest(self, count: int) -> int:
        """Position of the longest record, in characters and uncut, among the first `count`."""
        entries = [self._file.records[line][1] for line in self._lines[:count]]
        return max(range(count), key=lambda i: len(entries[i].context) + len(entries[i].input))

    def sample(self, index: int, renderer: Renderer) -> Sample:
        """Sample `index`, its middle cut out where it is longer than `max_length`.

        Raises:
            EvalkitError: there is no such sample, or data or prompts cannot be had.
        """
        if not 0 <= index < len(self):
            raise EvalkitError(f"{self.name}: no sample {index} among {len(self)}")
        line, record = self._file.records[self._lines[index]]
        before, after = self._template.around(record.input)
        whole = before + record.context + after
        cut = truncate_middle.halves(whole, renderer.tokenizer, self.config.limit)
        spans = record.answers if self.facts.span else ()
        survived = truncate_middle.survives(cut, before, record.context, after, spans)
        return Sample(
            id=f"{self.name}/{index}",
            task=self.name,
            text=cut.text,
            references=record.answers,
            metric=self.facts.metric,
            max_new_tokens=self.config.max_new_tokens or self._max_new_tokens,
            cluster=f"{self.name}/{context_label(record.context)}",
            stop=self.facts.stop,
            chat=self.facts.chat,
            meta=self._meta(line, record, cut, survived),
        )

    def _meta(
        self, line: int, record: records.Record, cut: truncate_middle.Cut, survived: bool | None
    ) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "length": record.length,
            "tokens": cut.tokens,
            "truncated": cut.truncated,
            "gold_survived": survived,
            "_id": record.id,
            "line": line,
            **scoring_meta(self.task, record.all_classes),
        }
        if self.facts.min_new_tokens:
            meta["min_new_tokens"] = self.facts.min_new_tokens
        return meta

    @property
    def _file(self) -> records.File:
        path = records.pinned() if self.data is None else self.data
        file = records.load(path, self.task, e=self.bin is not None)
        if self.config.malformed == "refuse":
            refuse(file.problems)
        return file

    @cached_property
    def _lines(self) -> tuple[int, ...]:
        """Positions of the cell's records in the file."""
        entries = self._file.records
        if self.bin is None:
            return tuple(range(len(entries)))
        return tuple(i for i, (_, r) in enumerate(entries) if bin_of(r.length) == self.bin)

    @property
    def _prompts(self) -> prompts.Prompts:
        return prompts.load(self.prompts_folder)

    @property
    def _template(self) -> prompts.Template:
        return self._of_task(self._prompts.templates, "prompt template")

    @property
    def _max_new_tokens(self) -> int:
        return self._of_task(self._prompts.lengths, "answer budget")

    def _of_task(self, table: Mapping[str, T], what: str) -> T:
        if self.task not in table:
            raise EvalkitError(f"{self.name}: the prompts have no {what} for {self.task}")
        return table[self.task]

    def _is_pinned(self, path: Path) -> bool:
        return path.is_file() and records.is_pinned(path)


def build(config: LongBenchConfig, base_dir: Path) -> list[LongBenchTask]:
    """The cells of a recipe section, task by task; nothing is fetched or read yet.

    Raises:
        EvalkitError: a path of the recipe is not there.
    """
    data = _path(config.data, base_dir, "data")
    folder = _path(config.prompts, base_dir, "prompts")
    bins: tuple[str | None, ...] = BINS if config.is_e else (None,)
    return [
        LongBenchTask(config, name, bin_, data, folder) for name in config.names for bin_ in bins
    ]


def _path(name: str | None, base_dir: Path, key: str) -> Path | None:
    if name is None:
        return None
    path = base_dir / Path(name).expanduser()
    if not path.exists():
        raise EvalkitError(f"longbench: {key} = {name}: no such file or folder ({path})")
    return path
