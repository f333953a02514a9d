"""The tables of a comparison as plain cells; the terminal and Markdown only dress them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evalkit.analysis.compare import FLAGS, RunComparison, methods
from evalkit.analysis.grouping import in_force
from evalkit.core.grid import Grid, Share, between, change, joined, number
from evalkit.core.records import ArmEntry
from evalkit.dsa.json_types import JsonValue
from evalkit.report import own_samples
from evalkit.stats import MACRO, QUESTIONS, Row
from evalkit.stats.verdict import points

MOST_COLUMNS = 6
"""Tasks side by side at most; more of them are rows."""

ALWAYS = ("error", "empty", "length", "unclosed", "truncated", "over_length")
"""Counts that are told when they are zero, too."""

NOT_IN_PREDICTIONS = ("length", "cut_early", "truncated", "over_length")
"""Counts that imported predictions do not tell."""


def summary(comparison: RunComparison) -> Grid:
    """One row per arm: the macro average against the baseline, the bounds, and the verdict."""
    base = _find(comparison, comparison.result.baseline, MACRO)
    macros = [(arm, _find(comparison, arm.name, MACRO)) for arm in comparison.arms]
    shown = [(arm, row) for arm, row in macros if row is not None]
    bounds = any(not row.bound_is_interval for _, row in shown)
    rows = tuple(
        (
            arm.name,
            *_schedule(arm),
            own_samples.score(row, base),
            difference(row),
            interval(row),
            *([bound(row)] if bounds else []),
            p_value(row),
            str(row.verdict),
        )
        for arm, row in shown
    )
    tasks = [task.name for task in comparison.tasks]
    name = "macro" if len(tasks) > 1 else "".join(tasks)
    head = (
        *("arm", "full layers", "lag", "score", "Δ", f"{_percent(comparison)} interval"),
        *(["bound"] if bounds else []),
        *(p_head(comparison), "verdict"),
    )
    margin = comparison.settings.margin
    title = joined(
        (
            f"{name} of {', '.join(tasks)}; against {comparison.result.baseline}, margin ",
            Share(f"{margin:g}", points(margin)),
            f"{_methods(comparison)}{_question(comparison)}{comparison.left_out}",
        ),
        "",
    )
    return Grid(title, head, rows, (1, 2, 3, 4, len(head) - 2))


def by_task(comparison: RunComparison) -> Grid:
    """Score, difference and interval: one row per arm, or with many tasks one per task and arm."""
    tasks = [task.name for task in comparison.tasks]
    if all(row.arm == comparison.result.baseline for row in comparison.result.rows):
        return _alone(comparison)
    if len(tasks) > MOST_COLUMNS:
        return _tall(comparison)
    rows = []
    base = {task: _find(comparison, comparison.result.baseline, task) for task in tasks}
    for arm in comparison.arms:
        cells = [arm.name]
        for task in tasks:
            row = _find(comparison, arm.name, task)
            cells.append("–" if row is None else _cell(row, base[task]))
        if any(cell != "–" for cell in cells[1:]):
            rows.append(tuple(cells))
    head = ("arm", *(f"{task} (n={row.n if row else 0})" for task, row in base.items()))
    return Grid(f"by task: score, Δ [interval]{comparison.left_out}", head, tuple(rows))


def _alone(comparison: RunComparison) -> Grid:
    """The scores of a run that has one arm."""
    rows = [_find(comparison, comparison.result.baseline, t.name) for t in comparison.tasks]
    cells = tuple((row.task, str(row.n), number(row.score)) for row in rows if row is not None)
    return Grid(f"by task{comparison.left_out}", ("task", "n", "score"), cells, (1, 2))


def _tall(comparison: RunComparison) -> Grid:
    """One row per task and arm, the baseline's score beside it."""
    shown = [
        row
        for task in comparison.tasks
        for row in comparison.result.rows
        if row.task == task.name and row.arm != comparison.result.baseline
    ]
    bounds = any(not row.bound_is_interval for row in shown)
    rows = [
        (
            row.task,
            row.arm,
            str(row.n),
            number(row.baseline_score),
            number(row.score),
            difference(row),
            interval(row),
            *([bound(row)] if bounds else []),
            str(row.verdict),
        )
        for row in shown
    ]
    head = (
        *("task", "arm", "n", "baseline", "score", "Δ", f"{_percent(comparison)} interval"),
        *(["bound"] if bounds else []),
        "verdict",
    )
    title = f"by task, against the baseline{comparison.left_out}"
    return Grid(title, head, tuple(rows), (2, 3, 4, 5))


def counts(comparison: RunComparison) -> Grid:
    """Answers and what went wrong with them, one row per arm."""
    planned = sum(task.samples for task in comparison.tasks) - len(comparison.excluded)
    seen = {flag for flags in comparison.flags.values() for flag in flags}
    shown = [flag for flag in FLAGS if flag in seen or flag in ALWAYS]
    rows = []
    for arm in comparison.arms:
        answered, _ = comparison.unfinished.get(arm.name, (planned, planned))
        flags: Mapping[str, int] = comparison.flags.get(arm.name, {})
        cells = (
            "–" if arm.imported and flag in NOT_IN_PREDICTIONS else str(flags.get(flag, 0))
            for flag in shown
        )
        rows.append((arm.name, f"{answered} of {planned}", *cells))
    head = ("arm", "answered", *(FLAGS[flag] for flag in shown))
    return Grid(f"answers{comparison.left_out}", head, tuple(rows), tuple(range(1, len(head))))


def notes(comparison: RunComparison, *, every_task: bool = False) -> list[str]:
    """What must be known beside the numbers, one line each.

    Args:
        comparison: the comparison.
        every_task: the cautions of single tasks too, not only those of the macro average.
    """
    lines = [*_rules(comparison)]
    lines += [
        f"unfinished: {name} has {answered} of {planned} answers"
        for name, (answered, planned) in comparison.unfinished.items()
        if comparison.options.drawing is None
    ]
    if comparison.excluded:
        lines.append(f"left out by hand (compare.exclude): {', '.join(comparison.excluded)}")
    flagged = {
        name: ", ".join(f"{counts[flag]} {FLAGS[flag]}" for flag in FLAGS if counts[flag])
        for name, counts in comparison.flags.items()
    }
    lines += [f"{', '.join(names)}: {text}" for text, names in _grouped(flagged).items() if text]
    always = set(ALWAYS)
    if any(arm.imported for arm in comparison.arms):
        always -= set(NOT_IN_PREDICTIONS)
    seen = {flag for flags in comparison.flags.values() for flag in flags if flags[flag]}
    unseen = [text for flag, text in FLAGS.items() if flag in always - seen]
    lines += [f"0 answers: {', '.join(unseen)}"] if unseen else []
    lines += [
        f"{', '.join(names)}: failed because: {text}"
        for text, names in _grouped(comparison.failures).items()
    ]
    lines += [*comparison.remarks, *own_samples.note(comparison.result)]
    lines += [f"{arm.name}: {arm.note}" for arm in comparison.arms if arm.note]
    departures = {
        task.name: ", ".join(f"{k} = {short(v)}" for k, v in task.deviations.items())
        for task in comparison.tasks
        if task.deviations
    }
    for text, names in _grouped(departures).items():
        lines.append(f"not the official parameters of {', '.join(names)}: {text}")
    imported = {
        arm.name: f"imported ({arm.imported.format}), so that its prompts are not known:"
        " it was not checked that all arms read the same, nor what was cut or truncated"
        for arm in comparison.arms
        if arm.imported
    }
    lines += [f"{', '.join(names)}: {text}" for text, names in _grouped(imported).items()]
    lines += comparison.parity
    for arm in comparison.arms:
        verdict = in_force(arm)
        if verdict and not verdict.startswith(("engaged", "not applicable")):
            lines.append(f"{arm.name}: schedule {verdict}")
    cautions: dict[str, list[str]] = {}
    for row in comparison.result.rows:
        if row.task == MACRO or every_task:
            place = row.arm if row.task == MACRO else f"{row.arm} on {row.task}"
            for note in row.notes:
                cautions.setdefault(note, []).append(place)
    return lines + [f"{note}: {_few(places)}" for note, places in cautions.items()]


def _rules(comparison: RunComparison) -> Iterator[str]:
    """What verdicts rest on, as far as this table needs it."""
    rows, options = comparison.result.rows, comparison.options
    if any(not row.bound_is_interval for row in rows):
        yield (
            "bound: what the verdict rests on; it allows losses and gains of a kind that no sample"
            " shows, an answer that is no evidence at its worst and at its best, and both runs of"
            " a baseline that ran twice. Where it is no wider, it is the interval (=)"
        )
    unusable = {name: sum(scores.unusable) for name, scores in comparison.scored.items()}
    counted = ", ".join(f"{count:,} of {name}" for name, count in unusable.items() if count)
    if counted:
        yield (
            f"no evidence: {counted} (failed, without an answer, or without room for one);"
            " verdicts count each at its worst and at its best"
        )
    if options.family == "all":
        yield (
            "the verdicts of all arms on a task hold together (Holm): the chance that any of them"
            f" is falsely called no worse is {100 * options.alpha:.2g} % at most"
        )
    if options.drawing is not None:
        yield (
            "stopped when decided: Δ, interval and p are those of the confidence sequence (Δ its"
            " middle where an arm was stopped); they hold however often one looked"
        )


def _percent(comparison: RunComparison) -> str:
    return f"{comparison.settings.confidence:.0%}".replace("%", " %")


def _question(comparison: RunComparison) -> str:
    """The question that stopped arms answer, for a title."""
    drawing = comparison.options.drawing
    return "" if drawing is None else f"; stopped when decided: {QUESTIONS[drawing.question]}"


def _methods(comparison: RunComparison) -> str:
    """Methods of the intervals for a title, and whether the situation chose them."""
    names = methods(comparison)
    if not names:
        return ""
    chosen = " (chosen by the data)" if comparison.settings.method == "auto" else ""
    return f", intervals: {', '.join(names)}{chosen}"


def _grouped(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Names by text, so that a remark on many is made once."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    return groups


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _schedule(arm: ArmEntry) -> tuple[str, str]:
    """Full layers and lag; as asked for, not as a fact, where nothing proves them."""
    schedule = arm.schedule
    if schedule is None:
        return "–", "–"
    full = f"{len(schedule.full_layer_ids)}/{len(schedule.layer_ids)}"
    verdict = in_force(arm)
    if verdict and not verdict.startswith(("engaged", "not applicable")):
        full = f"{full} asked, not proved"
    return full, str(schedule.lag) if isinstance(schedule.lag, int) else "by layer"


def _find(comparison: RunComparison, arm: str, task: str) -> Row | None:
    for row in comparison.result.rows:
        if (row.arm, row.task) == (arm, task):
            return row
    return None


def _cell(row: Row, base: Row | None) -> str:
    score = own_samples.score(row, base)
    return score if row.result is None else joined((score, difference(row), interval(row)))


def p_head(comparison: RunComparison) -> str:
    """Head of the column of p-values."""
    return "p (no worse)" if comparison.options.family == "each" else "p (no worse, Holm)"


def difference(row: Row) -> str:
    """Signed difference to the baseline."""
    return "" if row.result is None else change(row.result.delta)


def interval(row: Row) -> str:
    """[low, high] of the difference."""
    return "" if row.result is None else between(row.result.low, row.result.high)


def bound(row: Row) -> str:
    """[low, high] that the verdict rests on; = where that is the interval."""
    if row.bound is None:
        return ""
    return "=" if row.bound_is_interval else between(*row.bound)


def p_value(row: Row) -> str:
    """p-value of "the loss is the margin or more": three decimals, or < 0.001."""
    if row.decision is None:
        return ""
    value = row.decision.p_no_worse
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def short(value: JsonValue) -> str:
    """A value for one line; the hash of a word list stays in run.json."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 4:
        return f"{len(value)} entries"
    return str(value).split(", sha256")[0]
