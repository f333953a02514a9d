"""Joining the scored samples of two arms on sample id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalkit.core.errors import EvalkitError
from evalkit.stats.inputs import Floats


@dataclass(frozen=True, slots=True)
class ArmScores:
    """The scored samples of one arm, one entry per sample id.

    Attributes:
        ids: sample ids, unique within the arm.
        tasks: task of every sample.
        scores: in [0, 1]; a failed generation scores 0 and counts. With several generations per
            sample, their mean: the sample stays the unit, its spread holds both kinds of noise.
        clusters: haystack of every sample; ``""`` is a sample of its own. Empty: no clusters.
        errors: whether the generation failed. Empty: none did.
        unusable: whether the answer is no evidence of quality (it failed, or was cut before it
            came): verdicts count it at its worst and at its best. Empty: the failed ones.
    """

    ids: Sequence[str]
    tasks: Sequence[str]
    scores: Sequence[float]
    clusters: Sequence[str] = ()
    errors: Sequence[bool] = ()
    unusable: Sequence[bool] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One arm, checked, sorted by sample id.

    Attributes:
        name: the arm.
        ids, tasks, clusters: [n] strings; a sample without a cluster has its id as cluster.
        scores: [n] in [0, 1].
        errors: [n] whether the generation failed.
        unusable: [n] whether the answer is no evidence.
    """

    name: str
    ids: NDArray[np.str_]
    tasks: NDArray[np.str_]
    clusters: NDArray[np.str_]
    scores: Floats
    errors: NDArray[np.bool_]
    unusable: NDArray[np.bool_]

    def at(self, ids: NDArray[np.str_]) -> Table:
        """The rows of the given ids, all of which must be there."""
        rows = np.searchsorted(self.ids, ids)
        return Table(
            self.name,
            self.ids[rows],
            self.tasks[rows],
            self.clusters[rows],
            self.scores[rows],
            self.errors[rows],
            self.unusable[rows],
        )


def table(name: str, arm: ArmScores) -> Table:
    """Check one arm and sort it by id.

    Raises:
        EvalkitError: no samples, columns of different length, an id twice, or a score that is
            not in [0, 1].
    """
    n = len(arm.ids)
    if n == 0:
        raise EvalkitError(f"arm {name!r} has no scored samples")
    columns = {"tasks": arm.tasks, "scores": arm.scores}
    optional = {"clusters": arm.clusters, "errors": arm.errors, "unusable": arm.unusable}
    columns |= {key: value for key, value in optional.items() if len(value)}
    for key, value in columns.items():
        if len(value) != n:
            raise EvalkitError(f"arm {name!r}: {len(value)} {key} for {n} sample ids")
    ids = np.array(arm.ids, dtype=np.str_)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    twice = ids[1:][ids[1:] == ids[:-1]]
    if twice.size:
        raise EvalkitError(f"arm {name!r}: sample {twice[0]!s} is there more than once")
    scores = np.array(arm.scores, dtype=np.float64)[order]
    bad = np.flatnonzero(~((scores >= 0.0) & (scores <= 1.0)))
    if bad.size:
        where = ids[bad[0]]
        raise EvalkitError(f"arm {name!r}: score {scores[bad[0]]} of {where} is not in [0, 1]")
    clusters = np.array(arm.clusters if len(arm.clusters) else [""] * n, dtype=np.str_)[order]
    errors = np.array(arm.errors if len(arm.errors) else [False] * n, dtype=np.bool_)[order]
    unusable = np.array(arm.unusable, dtype=np.bool_)[order] if len(arm.unusable) else errors
    tasks = np.array(arm.tasks, dtype=np.str_)[order]
    return Table(name, ids, tasks, _own_cluster(clusters, ids), scores, errors, unusable)


def common(base: Table, arm: Table) -> NDArray[np.str_]:
    """Sorted ids that both arms have scored.

    Raises:
        EvalkitError: none, or a shared id has another task or cluster in the other arm.
    """
    ids = np.intersect1d(base.ids, arm.ids, assume_unique=True)
    if not ids.size:
        raise EvalkitError(f"arms {base.name!r} and {arm.name!r} share no sample: nothing to pair")
    left, right = base.at(ids), arm.at(ids)
    for noun, ours, theirs in (
        ("task ", left.tasks, right.tasks),
        ("", left.clusters, right.clusters),
    ):
        differing = np.flatnonzero(ours != theirs)
        if differing.size:
            k = differing[0]
            raise EvalkitError(
                f"sample {ids[k]!s}: {noun}{ours[k]!s} in arm {base.name!r} "
                f"but {noun}{theirs[k]!s} in arm {arm.name!r}"
            )
    return ids


def _own_cluster(clusters: NDArray[np.str_], ids: NDArray[np.str_]) -> NDArray[np.str_]:
    """Cluster labels in which a sample without one is a cluster of its own."""
    prefixed = np.char.add("cluster ", clusters)
    return np.where(clusters == "", np.char.add("sample ", ids), prefixed)
