"""Each way to select: beside a plain loop, and invariant under chunks, rows, batches, padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from evalkit.dsa import IndexFeatures, select
from evalkit.selections.full import Full
from evalkit.selections.hisa import Hisa
from evalkit.selections.misa import Misa
from evalkit.selections.precision import Precision
from evalkit.selections.rounding import Rounding, fp4, fp8, rotated
from evalkit.selections.temporal import Temporal
from tests.selections import reference
from tests.selections.reference import lists, random_features

LENGTH, TOPK = 45, 6
CUTS = {
    "hisa": Hisa(block=4, blocks=3),
    "hisa, one odd block": Hisa(block=7, blocks=2),
    "misa": Misa(heads=2, block=8),
    "misa, one head": Misa(heads=1, block=5),
    "misa, two stages": Misa(heads=1, block=8, candidates=12),
    "fp8": Precision(keys="fp8", queries="fp8"),
    "fp4 keys": Precision(keys="fp4"),
    "fp8, scales as they are": Precision(keys="fp8", queries="fp8", scales="fp32", rotate=False),
    "hisa, fp8": Hisa(block=4, blocks=3, keys="fp8", queries="fp8"),
    "hisa, fp4 keys": Hisa(block=4, blocks=4, keys="fp4", rotate=False),
    "misa, fp4 keys": Misa(heads=2, block=8, keys="fp4"),
    "misa, two stages, fp8": Misa(
        heads=1, block=8, candidates=12, keys="fp8", queries="fp8", scales="fp32"
    ),
}
SAME = {
    "full": Full(),
    "all blocks": Hisa(block=4, blocks=12),
    "all heads": Misa(heads=4, block=8),
    "all candidates": Misa(heads=1, block=8, candidates=LENGTH),
    "unrounded": Precision(),
    "every step": Temporal(every=1),
}
EIGHT = {"keys": "fp8", "queries": "fp8"}
FOUR = {"keys": "fp4", "scales": "fp32", "rotate": False}
UNROUNDED = {"keys": "unrounded", "queries": "unrounded", "scales": "fp32", "rotate": False}
ALONE = [
    (Hisa(block=4, blocks=3, **UNROUNDED), Hisa(block=4, blocks=3)),
    (Misa(heads=2, block=8, **UNROUNDED), Misa(heads=2, block=8)),
    (Temporal(every=4, **UNROUNDED), Temporal(every=4)),
    (Hisa(block=4, blocks=12, **EIGHT), Precision(**EIGHT)),
    (Hisa(block=4, blocks=12, **FOUR), Precision(**FOUR)),
    (Misa(heads=4, block=8, **EIGHT), Precision(**EIGHT)),
    (Misa(heads=1, block=8, candidates=LENGTH, **FOUR), Precision(**FOUR)),
    (Temporal(every=1, **EIGHT), Precision(**EIGHT)),
]


def by_loop(policy, features, row, topk):
    """The reference's selection of a row, and the products it took."""
    query, weight, keys = lists(features, row)
    options = policy.model_dump(exclude={"kind", *Rounding.model_fields})
    powers = policy.scales == "ue8m0"

    def as_key(vector):
        return reference.rounded(vector, policy.keys, powers=powers)

    if (policy.keys, policy.queries) != ("unrounded", "unrounded"):
        turn = rotated if policy.rotate else (lambda x: x)
        query = turn(features.query[0, row]).tolist()
        query = [reference.rounded(q, policy.queries, powers=powers) for q in query]
        keys = [as_key(k) for k in turn(features.key[0, : len(keys)]).tolist()]
    if isinstance(policy, Hisa):
        options["as_key"] = as_key
        return reference.hisa(query, weight, keys, features.scale, topk, **options)
    if isinstance(policy, Misa):
        return reference.misa(query, weight, keys, features.scale, topk, **options)
    return reference.full(query, weight, keys, features.scale, topk)


@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("name", CUTS)
def test_selections_and_counts_are_those_of_a_plain_loop(name, ratio):
    policy, features = CUTS[name], random_features(LENGTH * ratio, ratio=ratio)
    ours = select(features, TOPK, policy=policy)[0]
    different = 0
    for row in range(features.query.shape[1]):
        wanted, products = by_loop(policy, features, row, TOPK)
        assert [i for i in ours[row].tolist() if i >= 0] == wanted
        seen = (row + 1) // ratio
        assert policy.products(seen, 4) == products
        different += set(wanted) != set(select(features, TOPK, torch.tensor([row]))[0, 0].tolist())
    assert different > LENGTH // 4, "a policy that changes nothing shows nothing"


@pytest.mark.parametrize("name", SAME)
def test_what_cuts_nothing_selects_bit_for_bit_as_the_indexer(name):
    features = random_features(LENGTH)
    for chunk in (1, 500, 10**6):
        whole = select(features, TOPK, chunk_elements=chunk)
        assert torch.equal(select(features, TOPK, policy=SAME[name], chunk_elements=chunk), whole)
    assert SAME[name].products(LENGTH, 4) == 4 * LENGTH


@pytest.mark.parametrize(("both", "alone"), ALONE, ids=lambda policy: policy.text)
def test_two_in_one_layer_are_either_alone_where_the_other_does_nothing(both, alone):
    features = random_features(LENGTH)
    for chunk in (1, 10**6):
        wanted = select(features, TOPK, policy=alone, chunk_elements=chunk)
        assert torch.equal(select(features, TOPK, policy=both, chunk_elements=chunk), wanted)
    assert both.key_bits == alone.key_bits
    assert both.products(LENGTH, 4) == alone.products(LENGTH, 4)


@pytest.mark.parametrize("name", CUTS)
def test_chunks_and_rows_do_not_change_a_selection(name):
    policy, features = CUTS[name], random_features(LENGTH)
    whole = select(features, TOPK, policy=policy)
    for chunk in (1, 300):
        assert torch.equal(select(features, TOPK, policy=policy, chunk_elements=chunk), whole)
    rows = torch.tensor([44, 3, 17])
    assert torch.equal(select(features, TOPK, rows, policy=policy), whole[:, rows])
    # what comes after a row is nothing to it
    early = replace(features, key=features.key[:, :30])
    first = select(early, TOPK, torch.arange(30), policy=policy)
    assert torch.equal(first, whole[:, :30])


@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("name", CUTS)
def test_padding_and_batches_do_not_change_a_selection(name, ratio):
    policy, length, pad = CUTS[name], LENGTH * ratio, 6 * ratio
    features = random_features(length, ratio=ratio)
    alone = select(features, TOPK, policy=policy)

    def behind(part, count=pad):
        return torch.cat([torch.randn(1, count, *part.shape[2:]), part], dim=1)

    other = random_features(length + pad, seed=1, ratio=ratio)
    valid = torch.ones(2, LENGTH + 6, dtype=torch.bool)
    valid[0, :6] = False
    both = IndexFeatures(
        torch.cat([behind(features.query), other.query]),
        torch.cat([behind(features.key, 6), other.key]),
        torch.cat([behind(features.weight), other.weight]),
        features.scale,
        torch.arange(length + pad),
        ratio=ratio,
        key_valid=valid,
    )
    together = select(both, TOPK, policy=policy)
    padded = together[0, pad:]
    assert torch.equal(torch.where(padded >= 0, padded - 6, -1), alone[0])
    assert torch.equal(together[1:], select(other, TOPK, policy=policy))
    assert (together[0, :pad] == -1).all()
    one_by_one = torch.stack([torch.arange(pad, length), torch.arange(length - pad)])
    rows = select(both, TOPK, one_by_one, policy=policy)
    assert torch.equal(rows[0], together[0, pad:length])
    assert torch.equal(rows[1], together[1, : length - pad])


def test_equal_blocks_and_heads_are_taken_in_order():
    features = replace(random_features(32), key=torch.ones(1, 32, 8))
    chosen = select(features, 32, policy=Hisa(block=4, blocks=3))[0, 31].sort().values
    assert chosen[chosen >= 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 28, 29, 30, 31]
    same = replace(features, query=torch.ones(1, 32, 4, 8), weight=torch.ones(1, 32, 4))
    assert Misa(heads=2, block=8)._active_heads(same)[0, 31].tolist() == [True, True, False, False]


def test_rounding_by_hand():
    # amax 896 = 2 · 448: scale 2; 35 / 2 = 17.5 lies between 16 and 18 of e4m3, 18 is nearer
    assert fp8(torch.tensor([896.0, 35.0]), powers=True).tolist() == [896.0, 36.0]
    # amax 900: 900 / 448 is 2.009 and up to the next power 4; 35 / 4 = 8.75 between 8 and 9
    assert fp8(torch.tensor([900.0, 35.0]), powers=True).tolist() == [896.0, 36.0]
    # amax 12: scale 2; 5 / 2 = 2.5 lies between 2 (code 4) and 3 (code 5): the even code
    assert fp4(torch.tensor([12.0, 5.0, -3.4, 0.4])).tolist() == [12.0, 4.0, -3.0, 0.0]
    # two blocks of channels, two scales
    wide = torch.cat([torch.full((32,), 6.0), torch.full((32,), 0.5)])
    assert torch.equal(fp4(wide), wide)
    assert fp4(wide, block=64)[32:].tolist() == [0.5] * 32
    assert torch.equal(fp8(torch.zeros(24), powers=True), torch.zeros(24))


@pytest.mark.parametrize("channels", [16, 24, 128])
def test_the_rotation_keeps_products(channels):
    torch.manual_seed(0)
    x, y = torch.randn(2, 5, channels, dtype=torch.float64)
    assert torch.allclose(rotated(x) @ rotated(y).T, x @ y.T, atol=1e-6)
    assert not torch.allclose(rotated(x), x)
