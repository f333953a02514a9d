"""What a comparison is told besides scores: the recipe's choices, floors, doubts, the drawing."""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.analysis.floors import floors
from evalkit.config.run import CompareConfig, ScoringConfig
from evalkit.core.records import ArmEntry, ItemRow, RunRecord
from evalkit.stats import Drawing, Options, Reason
from evalkit.stats.verdict import NotEngaged, StoppingInterrupted


def comparison_options(
    run: RunRecord, items: Mapping[str, ItemRow], settings: CompareConfig, baseline: str
) -> Options:
    """The choices behind every table of a run.

    Args:
        run: run.json.
        items: gold by sample id.
        settings: how arms are compared.
        baseline: name of the arm that the others are compared with.
    """
    record = run.until_decided
    first, second = settings.baseline or run.names[0], settings.repeat_of_baseline
    other = {first: second, second: first}  # whoever takes the second run still has both
    withheld = {arm.name: reason for arm in run.arms if (reason := _doubt(arm)) is not None}
    if record is not None and not record.finished:
        withheld = {arm.name: StoppingInterrupted() for arm in run.arms}
    drawing = None
    if record is not None and record.finished:
        drawing = Drawing(record.question, record.order, record.clusters)
    return Options(
        margin=settings.margin,
        margins=settings.margins,
        method=settings.method,
        confidence=settings.confidence,
        n_resamples=settings.resamples,
        seed=settings.seed,
        family=settings.family,
        rare_losses_excluded=settings.rare_losses_reason.strip(),
        repeat=other.get(baseline),
        floors=floors(items, ScoringConfig.model_validate(run.scoring or run.section("scoring"))),
        withheld=withheld,
        drawing=drawing,
    )


def _doubt(arm: ArmEntry) -> Reason | None:
    """Why nothing shows that an arm's setting did anything; None where nothing speaks against it.

    A server that does not tell is no reason: its row says that the schedule is not proved.
    """
    if arm.engagement.startswith("not engaged"):
        return NotEngaged(arm.check.reason if arm.check else arm.engagement)
    if arm.check is not None and arm.check.verdict != "engaged" and arm.check.did_nothing:
        return NotEngaged(arm.check.did_nothing)
    return None
