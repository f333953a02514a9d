"""Questions of a user's own file, checked before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evalkit.core.errors import EvalkitError
from evalkit.core.json_fields import BadField
from evalkit.core.plugins import near
from evalkit.data.records import Problem, SourceLocation, refuse
from evalkit.data.tables import Table, load_dataset, read_table
from evalkit.dsa.json_types import JsonObject
from evalkit.scorers import score
from evalkit.tasks.common.context_label import context_label
from evalkit.tasks.records.config import RecordsConfig
from evalkit.tasks.records.template import Template, as_text, as_texts


@dataclass(frozen=True, slots=True)
class Question:
    """One record, checked.

    Attributes:
        line: of the file; row of a Parquet file or data set.
        row: its fields.
        references: gold answers.
        cluster: equal for records that ask about one text.
        id: by the field `RecordsConfig.id`, or None.
    """

    line: int
    row: JsonObject
    references: tuple[str, ...]
    cluster: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Questions:
    """All records of a section.

    Attributes:
        sha256: of the file or data set.
        template: of their prompts.
        entries: in the order of the file.
        classes: every gold answer once, sorted, for classification.
    """

    sha256: str
    template: Template
    entries: tuple[Question, ...]
    classes: tuple[str, ...]


def table(config: RecordsConfig, base_dir: Path) -> Table:
    """What a section names; raises EvalkitError where it cannot be read."""
    if config.path is not None:
        return read_table(base_dir / Path(config.path).expanduser())
    folder = base_dir / Path(config.dataset or "").expanduser()
    name = str(folder.resolve()) if folder.is_dir() else config.dataset or ""
    return load_dataset(name, config.subset, config.split or "", config.revision)


def load(config: RecordsConfig, base_dir: Path) -> Questions:
    """The questions of a section.

    Raises:
        EvalkitError: the file cannot be read, a field of the section is in no record (the near one
            is named), or a record cannot be asked or scored; names file, line and field.
    """
    rows = table(config, base_dir)
    return _checked(config, rows.where, rows.sha256, _Same(rows))


@dataclass(frozen=True, slots=True)
class _Same:
    """A table as the key of a cache: its hash stands beside it."""

    table: Table

    def __hash__(self) -> int:
        return hash(self.table.sha256)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.table.sha256 == other.table.sha256


@lru_cache(maxsize=4)
def _checked(config: RecordsConfig, where: str, digest: str, same: _Same) -> Questions:
    rows, template = same.table, config.template
    if not rows.rows and not rows.problems:
        raise EvalkitError(f"{where}: no records")
    refuse(rows.problems)
    named = (*template.fields, config.references, config.id, config.cluster)
    _known(where, filter(None, named), rows.fields)
    entries: list[Question] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for line, row in rows.rows:
        try:
            question = _question(config, template, line, row)
            if question.id is not None and seen.setdefault(question.id, line) != line:
                earlier = f"{question.id[:40]!r} stands in line {seen[question.id]} already"
                raise BadField(config.id or "", earlier)
            entries.append(question)
        except BadField as error:
            problems.append(Problem(SourceLocation(where, line), error.field, error.message))
    refuse(problems)
    classes = tuple(sorted({gold for entry in entries for gold in entry.references}))
    _scorable(config, where, entries, classes)
    return Questions(digest, template, tuple(entries), classes)


def _known(where: str, names: Iterable[str], fields: tuple[str, ...]) -> None:
    """Refuse a field that no record has."""
    for name in names:
        if name not in fields and name.partition(".")[0] not in fields:
            raise EvalkitError(f"{where}: no record has a field {name}; {near(name, fields)}")


def _question(config: RecordsConfig, template: Template, line: int, row: JsonObject) -> Question:
    """One record; raises BadField."""
    template.fill(row)
    if config.cluster is not None:
        shared = as_text(row, config.cluster)
    else:
        shared = max((as_text(row, name) for name in template.fields), key=len)
    return Question(
        line,
        row,
        as_texts(row, config.references),
        context_label(shared),
        None if config.id is None else as_text(row, config.id),
    )


def _scorable(
    config: RecordsConfig, where: str, entries: Iterable[Question], classes: tuple[str, ...]
) -> None:
    """Refuse gold that the metric cannot use now, not when everything is answered."""
    for entry in entries:
        gold = entry.references
        try:
            score(config.metric, gold[0], gold, mode="strict", meta={"all_classes": classes})
        except EvalkitError as error:
            raise EvalkitError(f"{where}:{entry.line}: {config.references}: {error}") from None
