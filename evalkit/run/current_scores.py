"""Scores as answers, gold and rule stand now: no table rests on a score that is older than they.

What was scored stands beside every score (`basis`). Where an answer, its gold or the rule is
another one today, the answer is scored again, in memory: scores.jsonl is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evalkit.config.run import ScoringConfig
from evalkit.core.errors import EvalkitError
from evalkit.core.reasoning import has_reasoning
from evalkit.core.records import ArmEntry, ItemRow, RunRecord, SampleRow, ScoreRow
from evalkit.dsa.json_types import as_list
from evalkit.run.scoring import basis_of, rule_of, score_row, scoring_of
from evalkit.run.store import RunStore


@dataclass(frozen=True, slots=True)
class CurrentScores:
    """The scores of one arm.

    Attributes:
        answers: completions by sample id, and what was read.
        scores: by sample id, in the order of the gold; none without an answer.
        counts: how many answers were scored ``again``, are ``edited`` since they were recorded,
            came from a cache (``cached``), have ``reasoning`` that an imported arm beside arms run
            here is not scored by; how many scores were ``falsified`` since they were written, have
            ``lost`` their answer, or are ``untold``: of an earlier version, which did not keep what
            was scored.
    """

    answers: Mapping[str, SampleRow]
    scores: Mapping[str, ScoreRow]
    counts: Counter[str] = field(default_factory=Counter)

    def without(self, excluded: Collection[str]) -> CurrentScores:
        """The same without some samples; the counts stay those of all."""
        if not excluded:
            return self
        answers = {i: row for i, row in self.answers.items() if i not in excluded}
        scores = {i: row for i, row in self.scores.items() if i not in excluded}
        return CurrentScores(answers, scores, self.counts)


NOTES = {
    "again": "answers scored again, because answer, gold or rule changed since they were scored"
    " (evalkit score writes that down)",
    "lost": "scores left out, because their answers are gone",
    "edited": "answers are not those that were recorded (their checksum differs)",
    "falsified": "scores are not those that were written (their checksum differs): scored again",
    "untold": "scores of an earlier version, which do not tell what was scored: evalkit score"
    " makes sure of them",
    "cached": "answers were given in another run and taken from a cache (--cache)",
    "reasoning": "imported answers hold reasoning, which is split off as for the arms run here;"
    " the official script scores it, too",
}


def current_scores(
    store: RunStore,
    names: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    *,
    whole: bool = False,
) -> dict[str, CurrentScores]:
    """Answers and scores of the arms of a run, by name.

    Args:
        store: one run, or several merged; nothing is written.
        names: arms; default: all of run.json.
        exclude: samples to leave out; default: those of the recipe's ``compare`` section. Those
            that were taken out of the run after they were answered are left out, too.
        whole: leave nothing out.

    Raises:
        EvalkitError: an answer or a score belongs to a sample without gold, an answer must be
            scored again by a scorer that is not installed, or see `excluded_ids`.
    """
    run, items = store.read_run(), store.read_items()
    scoring = scoring_of(run)
    if exclude is None:
        exclude = [str(i) for i in as_list(run.section("compare").get("exclude"))]
    excluded = set() if whole else {*excluded_ids(exclude, items), *run.taken_out(items)}
    chosen = [arm for arm in run.arms if names is None or arm.name in names]
    return {arm.name: _current(store, run, arm, items, scoring).without(excluded) for arm in chosen}


def excluded_ids(exclude: Sequence[str], items: Mapping[str, ItemRow]) -> tuple[str, ...]:
    """Ids of the samples that are left out by hand: whole ids, or their ends such as ``qasper/17``.

    Raises:
        EvalkitError: there is no such sample, or there are several.
    """
    excluded = []
    for name in dict.fromkeys(exclude):
        ids = [name] if name in items else [i for i in items if i.endswith(f"/{name}")]
        if len(ids) != 1:
            several = f"it is the end of {len(ids)} ids, {ids[0]} among them" if ids else ""
            hint = several or "their ids are in items.jsonl"
            raise EvalkitError(f"compare.exclude: {name!r} is no sample of this run: {hint}")
        excluded.append(ids[0])
    return tuple(excluded)


def _current(
    store: RunStore,
    run: RunRecord,
    arm: ArmEntry,
    items: Mapping[str, ItemRow],
    scoring: ScoringConfig,
) -> CurrentScores:
    answers, stored = store.read_samples(arm.name), store.read_scores(arm.name)
    for what, rows in (("an answer to", answers), ("a score of", stored)):
        stray = next((i for i in rows if i not in items), None)
        if stray is not None:
            raise EvalkitError(
                f"{store.path}: arm {arm.name} has {what} {stray}, which items.jsonl does not hold"
            )
    rule = rule_of(scoring, arm, run)
    counts: Counter[str] = Counter(lost=sum(i not in answers for i in stored))
    scores = {}
    for sample_id, item in items.items():
        row, old = answers.get(sample_id), stored.get(sample_id)
        if row is None:
            continue
        counts["edited"] += row.edited
        counts["cached"] += row.cached
        if item.is_read:
            continue
        if old is not None and old.basis is None:
            counts["untold"] += 1
        elif (
            old is None
            or (falsified := old.edited)
            or old.basis != basis_of(item, row, rule, arm.dense_tokens)
        ):
            if old is not None:
                counts["falsified" if falsified else "again"] += 1
            old = score_row(item, row, rule, arm.dense_tokens)
        scores[sample_id] = old
    if arm.imported is not None and not all(other.imported for other in run.arms):
        counts["reasoning"] = _with_reasoning(answers.values(), rule)
    return CurrentScores(answers, scores, counts)


def _with_reasoning(answers: Iterable[SampleRow], rule: ScoringConfig) -> int:
    """Answers with reasoning that the rule does not score."""
    if rule.reasoning == "keep":
        return 0
    return sum(has_reasoning(row.completion) for row in answers)


def score_notes(arms: Mapping[str, CurrentScores]) -> list[str]:
    """What a reader of a table must know of the scores, one line each."""
    lines = []
    for kind, text in NOTES.items():
        named = [f"{name} ({n})" for name, arm in arms.items() if (n := arm.counts[kind])]
        if named:
            lines.append(f"{text}: {', '.join(named)}")
    return lines
