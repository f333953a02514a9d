"""Two streams of hidden states that go through the layers together: the original's and the arm's.

The original runs ahead as far as the teachers of the next full layer lie, and stores what they say;
the arm's follows up to that layer, whose indexer is then trained on its own input. Where states are
off-policy, the arm carries held-out and calibration text alone, for the evaluations; under a lag it
carries every draw: its prompt ends elsewhere each time.

    original/…, arm/…              see `distill.layerwise.hidden_states`
    input/<layer>/<batch>          attention-block input and query latent of a full layer
    teach/<layer>/…                keys, queries at the drawn positions, inputs on calibration text
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from distill.data.batch import Batch
from distill.errors import at
from distill.layerwise.batches import evaluation_queries
from distill.layerwise.hidden_states import HiddenStateStream
from distill.layerwise.layer_loader import Layer
from distill.layerwise.setup import LayerwiseSetup
from distill.models.student import State
from distill.objective.query_sampling import QueryGroup
from distill.objective.teachers import require_finite_features
from evalkit.dsa import IndexerCall, IndexFeatures


class Streams:
    """Hidden states in the store, and how far they are.

    Attributes:
        original_at: layer that the original's states stand before.
        arm_at: the same of the arm's.
        arm: its stream.
    """

    def __init__(self, setup: LayerwiseSetup, original_at: int = 0, arm_at: int = 0) -> None:
        self.original_at, self.arm_at = original_at, arm_at
        self._setup, self._store = setup, setup.store
        self._states: dict[int, State] = {}
        self._original = HiddenStateStream(setup, "original", setup.layers.layout.native)
        policy = setup.plan.policy
        self.arm = HiddenStateStream(setup, "arm", setup.schedule, self._states, policy=policy)
        self._last = max(max(setup.teachers(f)) for f in setup.trained)
        self._inputs_from_arm = {
            name: batch
            for name, batch in setup.carried.items()
            if setup.plan.on_policy or name.startswith("held_out/")
        }

    def begin(self) -> None:
        """Embed the text."""
        embedding = self._setup.layers.embed()
        self._original.embed(self._setup.batches, embedding)
        self.arm.embed(self._setup.carried, embedding)

    def use_trained(self, layer: int, state: State) -> None:
        """From now on the arm has this indexer at a layer."""
        self._states[layer] = state

    # -- the original -----------------------------------------------------------------------------

    def original_to(self, last: int, on_layer: Callable[[], None]) -> None:
        """Run the original through layer `last`; `on_layer` is called after every layer."""
        setup = self._setup
        while self.original_at <= last:
            number = self.original_at
            layer = setup.layers.open(number)

            def visit(name: str, call: IndexerCall, layer: Layer = layer) -> None:
                self._visit(layer.number, layer.indexer, name, call)

            visit_only = number == self._last
            self._original.advance(layer, setup.batches, visit, visit_only=visit_only)
            del layer, visit
            self.original_at = number + 1
            on_layer()
            self._original.discard(number)

    def _visit(self, number: int, indexer: nn.Module, name: str, call: IndexerCall) -> None:
        """Store what a layer of the original gives to the training: its input, what it teaches."""
        setup = self._setup
        off_policy = not setup.plan.on_policy and name not in self._inputs_from_arm
        if number in setup.trained and off_policy:
            self._keep_input(number, name, call)
        if setup.taught_by(number):
            self._teach(number, indexer, name, call)

    def _teach(self, layer: int, indexer: nn.Module, name: str, call: IndexerCall) -> None:
        """Store what a teacher says about a batch, linear in the length."""
        setup, root, batch = self._setup, f"teach/{layer}", self._setup.batches[name]
        split, _, number = name.partition("/")

        def features(group: QueryGroup) -> IndexFeatures:
            positions = group.positions.to(call.hidden.device)
            projected = setup.layers.features(indexer, call, positions)
            with at(f"layer {layer}"):
                require_finite_features(projected)
            return projected

        if split == "calibration":
            self._store.put(f"{root}/call/{name}", hidden=call.hidden, q_resid=call.q_resid)
        if split in ("held_out", "calibration"):
            for group in evaluation_queries(setup, batch):
                projected = features(group)
                self._put_queries(f"{root}/look/{name}/{group.phase}", projected)
            self._store.put(f"{root}/keys/{name}", key=projected.key)
            return
        first = int(number) * setup.config.train.micro_batch
        draws = [setup.draws_of.get(first + i, []) for i in range(len(batch.ids))]
        for turn in range(max(map(len, draws))):  # sequences that are drawn again: once per turn
            drawn = [(i, d[turn]) for i, d in enumerate(draws) if turn < len(d)]
            for group in training_queries(setup, batch, drawn):
                projected = features(group)
                for i, draw in drawn:
                    self._put_queries(f"{root}/draw/{draw}/{group.phase}", projected, i)
        self._store.put(f"{root}/keys/{name}", key=projected.key)

    def _put_queries(self, name: str, features: IndexFeatures, row: int | None = None) -> None:
        part = slice(None) if row is None else slice(row, row + 1)
        self._store.put(name, query=features.query[part], weight=features.weight[part])

    # -- the arm ----------------------------------------------------------------------------------

    def arm_to(self, layer: int, on_layer: Callable[[], None]) -> None:
        """Run the arm up to, not through, a layer."""
        while self.arm_at < layer:
            number = self.arm_at
            self.arm.advance(self._setup.layers.open(number), self._setup.carried)
            self.arm_at = number + 1
            on_layer()
            self.arm.discard(number)

    def keep_inputs(self, number: int) -> None:
        """Store the arm's inputs of the layer it stands before; off-policy, of held-out text."""

        def visit(name: str, call: IndexerCall) -> None:
            self._keep_input(number, name, call)

        layer = self._setup.layers.open(number)
        self.arm.advance(layer, self._inputs_from_arm, visit, visit_only=True)

    def _keep_input(self, number: int, name: str, call: IndexerCall) -> None:
        self._store.put(f"input/{number}/{name}", hidden=call.hidden, q_resid=call.q_resid)
        if call.rope is not None and f"rope/{name}" not in self._store:
            self._store.put(f"rope/{name}", cos=call.rope[0][:1], sin=call.rope[1][:1])


def training_queries(
    setup: LayerwiseSetup, batch: Batch, drawn: Sequence[tuple[int, int]]
) -> list[QueryGroup]:
    """Query positions of a whole batch for (row, draw) pairs; other rows repeat the first pair."""
    draws = [drawn[0][1]] * len(batch.ids)
    for row, draw in drawn:
        draws[row] = draw
    return setup.plan.query_groups(batch, draws, setup.plan.prompt_lengths(batch, draws))
