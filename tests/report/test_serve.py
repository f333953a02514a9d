"""`evalkit report --serve`: only the page and its samples, only to whoever knows the address."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from evalkit.analysis.compare import compare_run
from evalkit.report.serve import ReportServer
from tests.command import evalkit
from tests.report.runs import ARMS, SCRIPT, make


class KnownPrompts:
    """One prompt is known."""

    missing = "no reason"

    def text(self, sample_id, sha256):
        return "a whole prompt" if sample_id == "vt@4096/3" else None


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = make(tmp_path_factory.mktemp("run"), n=6, arms=ARMS[:3], tasks=("vt@4096",))
    server = ReportServer(store, compare_run(store), KnownPrompts())
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.close()
    thread.join()


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as reply:
        return reply.read().decode()


def test_page_samples_and_search(server):
    page = get(server.address)
    assert "connect-src 'self'" in page
    assert 'id="texts"' not in page
    assert "fetch(`sample/" in page
    question, gold, answers, prompt, missing = json.loads(get(server.address + "sample/3"))
    assert (question, gold) == ("Secret question 3 of vt@4096?", ["gold 3"])
    assert [SCRIPT, None] in answers  # as JSON: nothing runs it
    assert (prompt, missing) == ("a whole prompt", "")
    assert json.loads(get(server.address + "sample/2"))[3:] == [None, "no reason"]
    assert json.loads(get(server.address + "search?q=GOLD%203")) == [3]
    assert json.loads(get(server.address + "search?q=nothing%20such")) == []


@pytest.mark.parametrize(
    "path",
    [
        *("run.json", "../run.json", "..%2Frun.json", "sample/6", "sample/-1", "sample/x"),
        *("sample/", "sample/1/2", "sample/%31", "/etc/passwd", "arms/baseline/samples.jsonl"),
    ],
)
def test_nothing_else_is_there(server, path):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server.address + path)


def test_not_without_the_address_nor_under_another_name_nor_by_writing(server):
    root = f"http://{urlsplit(server.address).netloc}/"
    for url in (root, root + "x/", root + "x/sample/1"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(url)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server.address, Host="evil.example")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(server.address, data=b"x", timeout=20)
    assert urlsplit(server.address).hostname == "127.0.0.1"


def test_serving_writes_nothing(tmp_path, capsys):
    make(tmp_path, n=4, arms=ARMS[:2], tasks=("vt@4096",))
    assert evalkit("report", tmp_path, "--serve", "--public") == 2
    assert "--serve writes nothing" in capsys.readouterr().err
