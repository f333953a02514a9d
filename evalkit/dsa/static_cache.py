"""Families of which transformers has no static cache: `generate` says so in a line."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import nn

from evalkit.dsa.families.base import UnsupportedModelError
from evalkit.dsa.families.sites import IndexerSites
from evalkit.dsa.overrides import override_method

_MADE_BY = "_prepare_static_cache"  # of transformers' `generate`, which fails with a bare KeyError


def static_cache_refused(model: nn.Module, sites: IndexerSites) -> AbstractContextManager[None]:
    """Refuse `generate(cache_implementation="static")` where the family has no such cache.

    Inside the block, with an UnsupportedModelError.
    """

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedModelError(
            f"{sites.layout.model_type}: transformers has no static cache of compressed keys:"
            " generate without cache_implementation"
        )

    if sites.family.static_cache or not hasattr(model, _MADE_BY):
        return nullcontext()
    return override_method(model, _MADE_BY, refuse)
