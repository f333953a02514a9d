"""Two streams of hidden states that go through the layers together: the original's and the arm's.

The original runs ahead as far as the teachers of the next full layer lie, and leaves what they say
on the shelf; the arm's follows up to that layer, whose indexer is then trained on its own input.
Where states are off-policy, the arm carries held-out and calibration text alone, and looks are
taken at its states; under a lag it carries every draw: its prompt ends elsewhere each time.

    original/…, arm/…              see `distill.layerwise.hidden_states`
    input/<layer>/<batch>          attention-block input and query latent of a full layer
    teach/<layer>/…                keys, queries at the drawn rows, inputs on calibration text
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from distill.data.batch import Batch
from distill.layerwise.hidden_states import Course, State
from distill.layerwise.layer_loader import Layer
from distill.layerwise.setup import Job
from distill.objective.query_sampling import RowGroup
from evalkit.dsa import IndexerCall, IndexFeatures

LOOKED_AT = ("held_out", "calibration")


class Streams:
    """Hidden states on the shelf, and how far they are.

    Attributes:
        original_at: layer that the original's states stand in front of.
        arm_at: the same of the arm's.
        arm: its course.
    """

    def __init__(self, job: Job, original_at: int = 0, arm_at: int = 0) -> None:
        self.original_at, self.arm_at = original_at, arm_at
        self._job, self._shelf = job, job.shelf
        self._states: dict[int, State] = {}
        self._original = Course(job, "original", job.layers.layout.native)
        self.arm = Course(job, "arm", job.schedule, self._states)
        self._last = max(max(job.teachers(f)) for f in job.trained)
        self._seen_in_arm = {
            n: b for n, b in job.carried.items() if job.plan.on_policy or n.startswith("held_out/")
        }

    def begin(self) -> None:
        """Embed the text."""
        embedding = self._job.layers.embed()
        self._original.begin(self._job.batches, embedding)
        self.arm.begin(self._job.carried, embedding)

    def trained(self, layer: int, state: State) -> None:
        """From now on the arm has this indexer at a layer."""
        self._states[layer] = state

    # -- the original -----------------------------------------------------------------------------

    def original_to(self, last: int, on_layer: Callable[[], None]) -> None:
        """Run the original through layer `last`; `on_layer` is called behind every layer."""
        while self.original_at <= last:
            number = self.original_at
            layer = self._job.layers.open(number)

            def visit(name: str, call: IndexerCall, layer: Layer = layer) -> None:
                off_policy = not self._job.plan.on_policy and name not in self._seen_in_arm
                if layer.number in self._job.trained and off_policy:
                    self._keep_input(layer.number, name, call)
                if self._job.taught_by(layer.number):
                    self._teach(layer, name, call)

            self._original.through(layer, self._job.batches, visit, stop=number == self._last)
            del layer, visit
            self.original_at = number + 1
            on_layer()
            self._original.leave(number)

    def _teach(self, layer: Layer, name: str, call: IndexerCall) -> None:
        """What a teacher says about a batch, linear in the length."""
        job, root, batch = self._job, f"teach/{layer.number}", self._job.batches[name]
        split = name.partition("/")[0]

        def features(rows: Tensor) -> IndexFeatures:
            return layer.where.features(layer.indexer, call, rows.to(call.hidden.device))

        if split == "calibration":
            self._shelf.put(f"{root}/call/{name}", hidden=call.hidden, q_resid=call.q_resid)
        if split in LOOKED_AT:
            for group in looked_at(job, batch):
                said = features(group.rows)
                self._put_rows(f"{root}/look/{name}/{group.phase}", said)
            self._shelf.put(f"{root}/keys/{name}", key=said.key)
            return
        first = int(name.partition("/")[2]) * job.config.train.micro_batch
        draws = [job.draws_of.get(first + i, []) for i in range(len(batch.ids))]
        for turn in range(max(map(len, draws))):  # sequences that are drawn again: once per turn
            some = [(i, d[turn]) for i, d in enumerate(draws) if turn < len(d)]
            for group, order in drawn(job, batch, some):
                said = features(group.rows)
                for i, draw in order:
                    self._put_rows(f"{root}/draw/{draw}/{group.phase}", said, i)
        self._shelf.put(f"{root}/keys/{name}", key=said.key)

    def _put_rows(self, name: str, said: IndexFeatures, row: int | None = None) -> None:
        part = slice(None) if row is None else slice(row, row + 1)
        self._shelf.put(name, query=said.query[part], weight=said.weight[part])

    # -- the arm ----------------------------------------------------------------------------------

    def arm_to(self, layer: int, on_layer: Callable[[], None]) -> None:
        """Run the arm up to, not through, a layer."""
        while self.arm_at < layer:
            number = self.arm_at
            self.arm.through(self._job.layers.open(number), self._job.carried)
            self.arm_at = number + 1
            on_layer()
            self.arm.leave(number)

    def keep_inputs(self, number: int) -> None:
        """The arm's inputs of the layer it stands in front of; off-policy, of held-out text."""
        self.arm.through(
            self._job.layers.open(number), self._seen_in_arm,
            lambda name, call: self._keep_input(number, name, call), stop=True,
        )  # fmt: skip

    def _keep_input(self, number: int, name: str, call: IndexerCall) -> None:
        self._shelf.put(f"input/{number}/{name}", hidden=call.hidden, q_resid=call.q_resid)
        if call.rope is not None and f"rope/{name}" not in self._shelf:
            self._shelf.put(f"rope/{name}", cos=call.rope[0][:1], sin=call.rope[1][:1])


def looked_at(job: Job, batch: Batch) -> list[RowGroup]:
    """Rows of held-out and calibration text, as the probes draw them."""
    draws = range(batch.first, batch.first + len(batch.ids))
    return job.plan.groups(batch, draws, job.plan.prompts(batch, draws))


def drawn(
    job: Job, batch: Batch, some: list[tuple[int, int]]
) -> list[tuple[RowGroup, list[tuple[int, int]]]]:
    """Row groups over a whole batch for (row, draw) pairs; other rows repeat the first pair."""
    every = [some[0][1]] * len(batch.ids)
    for i, draw in some:
        every[i] = draw
    prompts = job.plan.prompts(batch, every)
    return [(group, some) for group in job.plan.groups(batch, every, prompts)]
