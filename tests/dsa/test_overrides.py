"""Overrides of a forward and of an indexer: exact undo, nested and after errors."""

from __future__ import annotations

import pytest
from torch import nn, ones

from evalkit.dsa.overrides import override_forward, swap_indexer


def owner_with(kind: str) -> nn.Module:
    """An owner whose indexer is a module, a registered None, or a plain attribute None."""
    owner = nn.Module()
    if kind == "attribute":
        object.__setattr__(owner, "indexer", None)
    else:
        owner.register_module("indexer", nn.Linear(1, 1) if kind == "module" else None)
    owner.register_module("after", nn.Linear(1, 1))
    return owner


def test_a_forward_is_overridden_on_the_instance_and_comes_back():
    module = nn.Linear(1, 1)
    before, expected = dict(vars(module)), module(ones(1, 1))
    with override_forward(module, lambda x: "outer"):
        assert module(ones(1, 1)) == "outer"
        with pytest.raises(ZeroDivisionError), override_forward(module, lambda x: "inner"):
            assert module(ones(1, 1)) == "inner"
            raise ZeroDivisionError
        assert module(ones(1, 1)) == "outer"
    assert dict(vars(module)) == before
    assert module(ones(1, 1)) == expected


@pytest.mark.parametrize("kind", ["module", "registered", "attribute"])
def test_a_swapped_indexer_comes_back_where_it_stood(kind):
    owner, other = owner_with(kind), nn.Linear(1, 1)
    before, children = dict(vars(owner)), dict(owner._modules)
    order, indexer = list(owner._modules), owner.indexer
    with pytest.raises(ZeroDivisionError), swap_indexer(owner, other):
        assert owner.indexer is other
        assert dict(owner.named_children())["indexer"] is other
        raise ZeroDivisionError
    assert owner.indexer is indexer
    assert dict(vars(owner)) == before
    assert (dict(owner._modules), list(owner._modules)) == (children, order)
