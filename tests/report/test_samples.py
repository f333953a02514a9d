"""The samples of a page: what is kept, what is cut, and that a page reads back what was packed."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.report.payload import TOO_LARGE, json_bytes, packed, payload
from evalkit.report.sample_browser import UNKNOWN, samples
from tests.report.runs import ARMS, make


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    store = make(tmp_path_factory.mktemp("run"))
    return samples(store, compare_run(store))


def test_everything_is_kept_whole_where_it_fits(held):
    whole = payload(held)
    index, texts = unpacked(whole.index), unpacked(whole.texts)
    assert (whole.kept, whole.total, whole.cut) == (200, 200, None)
    assert whole.prompts == UNKNOWN
    assert index["arms"][0] == "baseline"
    assert len(index["arms"]) == len(ARMS)
    place = next(k for k, row in enumerate(index["rows"]) if row[0] == "needle@512/5")
    _, task, length, depth, which, scores, flags = index["rows"][place]
    assert (index["tasks"][task], length, depth) == ("needle@512", 512, 0.0)
    failed = index["arms"].index("IndexCache 1/4")
    assert (flags[failed], scores[failed]) == ("error", 0.0)
    assert max(scores) == 100  # points
    assert which[index["arms"].index("again")] == which[0]  # equal answers are kept once
    question, gold, answers, prompt = texts[place]
    assert (question, gold, prompt) == ("Secret question 5 of needle@512?", ["gold 5"], None)
    assert answers[which[0]] == ["gold 5", None]  # nothing was taken away before scoring
    assert answers[which[failed]][1].startswith("cannot reach")


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
def test_what_does_not_fit_loses_what_tells_nothing_and_is_cut(held, share):
    room = int(share * len(payload(held).texts))
    less = payload(held, room)
    assert len(less.texts) <= room
    ids = [row[0] for row in unpacked(less.index)["rows"]]
    assert ids == [i for i in held.ids if held.tells(i)]
    assert less.kept == len(ids) < less.total
    texts = unpacked(less.texts)
    assert len(texts) == len(ids)
    if less.cut is not None:
        longest = max(len(t) for row in texts for pair in row[2] for t in pair if t)
        assert longest <= less.cut + len(" … (1,000 characters)")


class Long:
    """Prompts of some size that no compression makes small."""

    missing = ""

    def __init__(self, size):
        self.size = size

    def text(self, sample_id, sha256):
        import random

        return random.Random(sample_id).randbytes(self.size // 2).hex()


def test_prompts_are_in_the_page_only_where_all_of_them_fit(tmp_path):
    store = make(tmp_path, n=10, arms=ARMS[:2], tasks=("vt@4096",))
    comparison = compare_run(store)
    small = payload(samples(store, comparison, Long(100)))
    assert small.prompts == ""
    assert all(len(row[3]) == 100 for row in unpacked(small.texts))
    large = payload(samples(store, comparison, Long(100_000)), room=100_000)
    assert large.prompts == TOO_LARGE
    assert all(row[3] is None for row in unpacked(large.texts))
    assert large.kept == 10


@pytest.mark.parametrize("text", ["</script>", "<!--", "a\u2028b", "\ud800", "&lt;", "]]>", "é汉"])
def test_any_text_comes_back_and_nothing_of_it_is_markup(text):
    written = packed([text])
    assert set(written) <= set(base64.b64encode(bytes(range(256))).decode()) | set("+/=") | set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    )
    assert unpacked(written) == [text]
    assert json.loads(json_bytes([text])) == [text]
    assert written == packed([text])  # equal data, equal page
