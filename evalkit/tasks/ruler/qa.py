"""Questions over documents: the documents with the answer among others (SQuAD, HotpotQA)."""

from __future__ import annotations

from itertools import accumulate, islice

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Renderer, Sample
from evalkit.data.documents import pool
from evalkit.tasks.common.fit_length import Grid
from evalkit.tasks.common.rng import permutation
from evalkit.tasks.ruler.cell import Cell


class DocumentQa:
    """A sample of ``qa_1`` or ``qa_2`` with the number of documents still open."""

    def __init__(self, cell: Cell, index: int, _renderer: Renderer) -> None:
        self._cell, self._index = cell, index
        dataset = str(cell.spec.args["dataset"])
        source = pool(dataset)
        if index >= len(source.questions):
            raise EvalkitError(
                f"{cell.name}: sample {index}, but {dataset} has {len(source.questions)} questions"
            )
        # Sample i asks question i, as officially; the estimate's sample (-1) asks the last one.
        self._question = source.questions[index]
        self._documents = source.documents
        question = self._question
        near = list(question.near)
        cell.rng(index, "near documents").shuffle(near)
        taken = {*question.gold, *near}
        others = permutation(len(self._documents), cell.rng(index, "other documents"))
        self._order = [*question.gold, *near]
        self._others = (number for number in others if number not in taken)
        self._sizes: list[int] = []
        self.grid: Grid = cell.grid(10, least=len(question.gold), last=len(self._documents))

    def size(self, units: int) -> float:
        """Characters of the documents."""
        if len(self._sizes) < units:
            lengths = (len(self._documents[number]) + 16 for number in self._chosen(units))
            self._sizes = list(accumulate(lengths))
        return self._sizes[units - 1]

    def build(self, units: int) -> Sample:
        """See `evalkit.tasks.common.fit_length.Draft`."""
        chosen = self._chosen(units)
        self._cell.rng(self._index, f"order/{units}").shuffle(chosen)
        context = "\n\n".join(
            f"Document {i}:\n{self._documents[number]}" for i, number in enumerate(chosen, start=1)
        )
        spec, question = self._cell.spec, self._question
        return self._cell.sample(
            self._index,
            text=spec.template.format(context=context, query=question.text),
            answer_prefix=spec.answer_prefix,
            references=question.answers,
            metric="ruler_part",
            cluster=f"document {question.gold[0]}" if len(question.gold) == 1 else None,
            meta={
                "question": question.text,
                "units": units,
                "gold_documents": [1 + chosen.index(number) for number in question.gold],
            },
        )

    def _chosen(self, units: int) -> list[int]:
        """Gold documents, then those of the same article, then any: the first `units`."""
        self._order.extend(islice(self._others, max(0, units - len(self._order))))
        return self._order[:units]
