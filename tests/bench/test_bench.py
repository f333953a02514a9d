"""The arithmetic of `evalkit bench`, and the command against servers with known speeds."""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from evalkit.bench import workload
from evalkit.bench.intervals import IntervalSettings, RatioUnits, estimate, latency, rate, ratio
from evalkit.bench.load_generator import Timing, drive
from evalkit.bench.metrics import gaps, measure, parts, steady_span, tpot, ttft, windows
from evalkit.bench.results import Round, drift, ratios, speed
from evalkit.bench.server_metrics import accept_length, accept_length_of, between, read_counters
from evalkit.config.bench import BenchConfig
from evalkit.config.server import OpenAIServerConfig
from evalkit.engagement.server_info import JsonClient
from evalkit.engines.openai.api_keys import Key
from evalkit.engines.openai.wire import Wire
from evalkit.run.store import RunStore
from evalkit.stats import Verdict
from tests.engagement.test_check import evalkit, sglang
from tests.servers.fake import FakeServer
from tests.servers.misbehaving import Misbehaving, ended


def timing(number, sent, arrivals, tokens=None, **more):
    count = len(arrivals) if tokens is None else tokens
    return Timing(number, sent, sent, tuple(arrivals), 10, count, **more)


# -- definitions --------------------------------------------------------------------------------


def test_itl_is_not_tpot():
    """Nine tokens in pieces of three: a piece every 30 ms, a token every 10 ms or so."""
    one = timing(0, 1.0, [1.5, 1.53, 1.56], tokens=9)
    assert ttft(one) == pytest.approx(0.5)
    assert gaps(one) == pytest.approx([0.03, 0.03])
    assert tpot(one) == pytest.approx(0.06 / 8)


def test_the_steady_window_by_its_rule():
    """Ten at once at most; steady while nine or more are in flight: here from 9 s to 90 s."""
    timings = [timing(i, float(i), [81.0 + i + i / 2]) for i in range(10)]
    assert [t.end for t in timings[:3]] == [81.0, 82.5, 84.0]
    start, end = steady_span(timings)
    assert (start, end) == (8.0, 82.5)  # the ninth begins, the second ends
    whole, steady = windows(timings)
    assert (whole.start, whole.end) == (0.0, 94.5)
    assert steady is None  # no request lies inside: too few for a window


def test_each_window_has_its_own_denominator_and_failures_have_none():
    """One token per second and request, 12 requests in a row of 10 s, two of them side by side."""
    lane = [[timing(i, 10.0 * i, [10 * i + k + 1.0 for k in range(10)]) for i in range(12)]] * 2
    tail = [timing(30, 120.0, [120.0 + k + 1 for k in range(20)])]
    failed = [timing(31, 0.0, [], error="503")]
    timings = [*lane[0], *lane[1], *tail, *failed]
    whole = measure(parts([timings], "whole"), cards=2)
    assert (whole.seconds, whole.output_tokens, whole.requests) == (140.0, 260.0, 25)
    assert whole.tokens_per_second == pytest.approx(260 / 140)
    assert whole.per_card == pytest.approx(130 / 140)
    steady = measure(parts([timings], "steady"), cards=2)
    assert (steady.seconds, steady.output_tokens, steady.requests) == (120.0, 240.0, 24)
    assert steady.per_card == pytest.approx(1.0)
    assert steady.tpot.mean == steady.itl.p99 == pytest.approx(1.0)
    result = speed([Round("a", 0, tuple(timings), {})], load_config(cards=2))
    assert (result.succeeded, result.failed, result.errors) == (25, 1, ("503",))


def test_quantiles():
    result = measure(
        parts(
            [[timing(i, 0.0, [(i + 1) / 10, (i + 1) / 10 + 0.2], 2) for i in range(100)]], "whole"
        ),
        cards=1,
    )
    assert result.ttft.mean == pytest.approx(5.05)
    assert result.ttft.p50 == pytest.approx(5.05)
    assert result.ttft.p90 == pytest.approx(9.01)
    assert result.ttft.p99 == pytest.approx(9.901)
    assert result.tpot.p90 == pytest.approx(0.2)


def load_config(**changes):
    return BenchConfig(**{"input_tokens": 8, "output_tokens": 4, "resamples": 500} | changes)


# -- the first seed's table ----------------------------------------------------------------------

CARDS, REQUESTS, AT_ONCE, OUT = 16, 640, 64, 1024
OFF, FREQ2 = 164.10, 172.99  # output tokens per second and card, steady window


def seed_round(per_card, whole_per_card, verifications):
    """640 requests, 64 at once, in lockstep; the last one of one place runs on alone."""
    seconds = AT_ONCE * OUT / (per_card * CARDS)
    tail = REQUESTS * OUT / (whole_per_card * CARDS) - 10 * seconds
    pieces = round(verifications / REQUESTS)
    timings = []
    for number in range(REQUESTS):
        start = number // AT_ONCE * seconds
        length = seconds + (tail if number == REQUESTS - 1 else 0.0)
        arrivals = [start + length * (k + 1) / pieces for k in range(pieces)]
        timings.append(timing(number, start, arrivals, OUT))
    counted = {"verifications": verifications, "accepted": REQUESTS * OUT - verifications}
    return timings, counted


def test_the_table_of_the_first_seed():
    config = load_config(input_tokens=16384, output_tokens=OUT, cards=CARDS, max_drift=0.02)
    whole_off = 150.0  # the seed gives the whole window's gain only
    off, off_counted = seed_round(OFF, whole_off, 208_933)
    on, on_counted = seed_round(FREQ2, whole_off * 1.0345, 206_180)
    base = [Round("OFF", 0, tuple(off), off_counted)]
    arm = [Round("freq2", 0, tuple(on), on_counted)]
    before, after = speed(base, config), speed(arm, config)
    for result, value in ((before, OFF), (after, FREQ2)):
        assert result.measures["steady"].per_card == pytest.approx(value, rel=2e-3)
        assert result.measures["steady"].tokens_per_second == pytest.approx(16 * value, rel=2e-3)
        assert (result.succeeded, result.failed, result.cached) == (640, 0, None)
        assert result.measures["whole"].output_tokens == pytest.approx(655_360)
        # 3.1 tokens a piece: the time between pieces is not the time per token.
        times = result.latencies["steady"]
        assert times["itl"].value / times["tpot"].value == pytest.approx(3.14, rel=0.03)
    gain = ratios(arm, base, config)
    assert gain["steady"].value - 1 == pytest.approx(0.0541, abs=3e-4)
    assert gain["whole"].value - 1 == pytest.approx(0.0345, abs=1e-4)
    assert gain["steady"].low <= gain["steady"].value <= gain["steady"].high
    # The published figures are rounded; their ratio holds the published gain.
    assert (FREQ2 - 0.005) / (OFF + 0.005) < 1.05415 < (FREQ2 + 0.005) / (OFF - 0.005)
    assert f"{before.accept_length:.3f} {after.accept_length:.3f}" == "3.137 3.179"
    assert accept_length(655_360, 208_933) == before.accept_length


# -- intervals ------------------------------------------------------------------------------------


def test_intervals_are_seeded_and_cover():
    rng = np.random.default_rng(3)
    hits = 0
    for seed in range(200):
        tokens = rng.poisson(50, 40).astype(float)
        result = estimate(RatioUnits(tokens, np.full(40, 0.5)), IntervalSettings(0.95, 400, seed))
        hits += result.low <= 100 <= result.high
    assert 0.89 <= hits / 200 <= 0.985
    units, settings = RatioUnits(tokens, np.full(40, 0.5)), IntervalSettings(0.95, 400, 1)
    assert estimate(units, settings) == estimate(units, settings)
    two = ratio(RatioUnits(2 * tokens, units.denominator), units, settings)
    assert two.value == 2 and two.low < 2 < two.high


def test_latencies_are_means_over_their_own_units():
    """ITL over pieces, TTFT and TPOT over requests."""
    short = timing(0, 0.0, [1.0, 1.1], 2)
    long = timing(1, 0.0, [3.0, *(3.0 + 0.3 * k for k in range(1, 10))], 19)
    result = parts([[short, long]], "whole")
    assert latency("ttft", result).value == pytest.approx(2.0)
    assert latency("itl", result).value == pytest.approx((0.1 + 2.7) / 10)
    assert latency("tpot", result).value == pytest.approx((0.1 + 2.7 / 18) / 2)
    assert rate(result).value == pytest.approx(21 / 5.7)
    assert math.isnan(latency("tpot", parts([[timing(0, 0.0, [1.0], 1)]], "whole")).value)


def test_drift_compares_the_first_round_with_the_last():
    config = load_config(max_drift=0.02)

    def of(number, seconds):
        return Round("b", number, (timing(0, 0.0, [seconds / 2, seconds], 10),), {})

    result = drift([of(0, 1.0), of(1, 5.0), of(2, 1.01)], config)
    assert result.change == pytest.approx(-0.0099, abs=1e-4)
    assert result.holds
    assert not drift([of(0, 1.0), of(1, 1.05)], config).holds
    assert drift([of(0, 1.0)], config) is None


# -- counters -------------------------------------------------------------------------------------

METRICS = """# HELP vllm:prefix_cache_hits_total Prefix cache hits
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 250.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 2.4e+02
other_total 5
"""


def test_counters_of_servers():
    with (
        FakeServer(reports={"/metrics": METRICS}) as server,
        JsonClient(server.url, Key("")) as client,
    ):
        result = read_counters(client)
    assert result == {
        "cache_queries": 1000.0,
        "cache_hits": 250.0,
        "verifications": 120.0,
        "accepted": 240.0,
    }
    assert accept_length_of([between({}, result)]) == 3.0
    assert between(result, result)["accepted"] == 0.0
    info = {"internal_states": [{"avg_spec_accept_length": 2.5}]}
    with (
        FakeServer(reports={"/server_info": info}) as server,
        JsonClient(server.url, Key("")) as client,
    ):
        assert accept_length_of([between({}, read_counters(client))]) == 2.5
    with FakeServer() as server, JsonClient(server.url, Key("")) as client:
        assert read_counters(client) == {}
    assert accept_length_of([{}]) is None


# -- the load -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(paper_checkpoint):
    from evalkit.prompts.tokenizers import load_tokenizer

    return load_tokenizer(str(paper_checkpoint))


def test_prompts_have_the_length_and_depend_on_seed_and_number_alone(tokenizer, tmp_path):
    config = load_config(input_tokens=50)
    first = workload.prompts(config, tokenizer, 6, as_text=False)
    assert {len(p.token_ids) for p in first} == {50}
    assert len({p.sha256 for p in first}) == 6
    assert [p.sha256 for p in workload.prompts(config, tokenizer, 2, as_text=False, first=4)] == [
        p.sha256 for p in first[4:]
    ]
    other = workload.prompts(load_config(input_tokens=50, seed=1), tokenizer, 6, as_text=False)
    assert not {p.sha256 for p in first} & {p.sha256 for p in other}
    for prompt in workload.prompts(config, tokenizer, 6, as_text=True):
        assert tokenizer.encode(prompt.text) == list(prompt.token_ids)
        assert 45 <= len(prompt.token_ids) <= 50
    text = tmp_path / "text.txt"
    text.write_text("The calm badger keeps an apple in the basket. " * 20)
    real = load_config(input_tokens=30, prompts="text", text_file=str(text))
    for as_text in (False, True):
        for prompt in workload.prompts(real, tokenizer, 3, as_text=as_text):
            assert 27 <= len(prompt.token_ids) <= 30


def test_answers_that_a_server_breaks_off_are_failures(tokenizer):
    wire = Wire(OpenAIServerConfig(), tokenizer)
    prompts = workload.prompts(load_config(input_tokens=20), tokenizer, 1, as_text=False)
    errors = []
    for reason in ("abort", "length"):
        with Misbehaving(ended(reason)) as server:
            load = drive(wire, [server.url], Key(""), prompts, [0.0], concurrency=1, extra_body={})
            errors += [timing.error for timing in asyncio.run(load)]
    assert errors == ["the server broke the answer off: abort", None]


def test_arrivals():
    assert workload.arrivals(load_config(), 3) == [0.0, 0.0, 0.0]
    assert workload.arrivals(load_config(rate=4, arrival="fixed"), 3) == [0.0, 0.25, 0.5]
    many = np.diff(workload.arrivals(load_config(rate=4), 4000))
    assert many.mean() == pytest.approx(0.25, rel=0.06)
    assert many.std() == pytest.approx(0.25, rel=0.1)  # exponential: deviation = mean
    assert workload.arrivals(load_config(rate=4), 9) != workload.arrivals(load_config(rate=4), 9, 1)


# -- the command ----------------------------------------------------------------------------------

RECIPE = """
model = "{model}"
[engine]
kind = "openai_server"
probe_prompts = 0
[[tasks]]
kind = "needle"
lengths = [128]
depths = [0, 50]
repeats = 6
haystacks = 2
value_digits = 4
key_adjectives = ["brave", "calm", "eager"]
key_nouns = ["apple", "arrow", "badge"]
max_new_tokens = 6
[[arms]]
name = "OFF"
server = {{ urls = ["{off}"] }}
[[arms]]
name = "1/2"
retention = "1/2"
server = {{ urls = ["{half}"] }}
[[arms]]
name = "1/2, other build"
retention = "1/2"
server = {{ urls = ["{other}"], parity_of = "1/2" }}
[[arms]]
name = "1/4"
retention = "1/4"
server = {{ urls = ["{half}"] }}
[bench]
input_tokens = 24
output_tokens = 12
requests = 24
concurrency = 4
warmup = 1
resamples = 300
max_drift = 5.0
"""
HALF = '{"index_topk_pattern": "FSFSFSFS"}'


def words(_prompt, max_tokens):
    return [" word"] * max_tokens


def server(overrides, delay):
    return FakeServer(reports=sglang(overrides), piece_delay=delay, answer=words)


def test_speed_is_never_shown_without_quality(paper_checkpoint, tmp_path, capsys):
    out, path = tmp_path / "run", tmp_path / "recipe.toml"
    with server("{}", 0.02) as off, server(HALF, 0.005) as half, server(HALF, 0.005) as other:
        path.write_text(
            RECIPE.format(model=paper_checkpoint, off=off.url, half=half.url, other=other.url)
        )
        assert evalkit("bench", path, "--out", out) == 0
        printed = capsys.readouterr().out
        assert "faster; quality NOT EVALUATED" in printed
        assert "not engaged: not measured" in printed
        assert "drift: the baseline's last round was" in printed
        result = json.loads((out / "bench.json").read_text())
        arms = {arm["name"]: arm for arm in result["arms"]}
        # 20 ms a piece against 5 ms: about four times; less on a busy machine.
        assert arms["1/2"]["ratios"]["whole"]["low"] > 1.2
        times = {n: arms[n]["speed"]["measures"]["whole"]["tpot"]["mean"] for n in ("OFF", "1/2")}
        assert times["1/2"] < times["OFF"]
        assert arms["OFF"]["speed"]["succeeded"] == 48  # first and last
        assert arms["1/4"]["speed"] is None
        assert arms["1/4"]["engagement"] == "not engaged"
        assert any(
            note.startswith("parity of 1/2, other build with 1/2") for note in result["notes"]
        )
        # Every request has the load's length, and no prompt comes twice at a server.
        assert {len(body["prompt"]) for body in off.seen} == {24}
        assert len({json.dumps(body["prompt"]) for body in off.seen}) == len(off.seen) == 50
        assert all(body["ignore_eos"] and body["stream"] for body in off.seen)
        # Quality comes, the same measurement is shown with it.
        assert evalkit("run", path, "--out", out, "--set", "arms.1/4.retention=1/2") == 0
        capsys.readouterr()
        assert evalkit("bench", path, "--out", out, "--again") == 0
        printed = capsys.readouterr().out
    result = json.loads((out / "bench.json").read_text())
    arms = {arm["name"]: arm for arm in result["arms"]}
    assert arms["1/2"]["quality"]["verdict"] in set(Verdict)
    assert f"faster; quality {arms['1/2']['quality']['verdict']}" in printed
    # An arm that was evaluated with another schedule has no quality under this name.
    assert arms["1/4"]["quality"]["verdict"] == "NOT EVALUATED"
    assert "NOT EVALUATED" not in printed.replace("not measured", "").split("1/4")[0]
    assert (out / "bench.md").read_text().startswith("# Speed beside quality")


def test_a_baseline_that_drifts_takes_all_speeds_with_it(paper_checkpoint, tmp_path, capsys):
    out, path = tmp_path / "run", tmp_path / "recipe.toml"
    with server("{}", 0.004) as off, server(HALF, 0.004) as half:
        text = RECIPE.format(model=paper_checkpoint, off=off.url, half=half.url, other=half.url)
        path.write_text(text.replace("max_drift = 5.0", "max_drift = 0.02"))
        original = half.complete

        async def slower(*args):
            off.piece_delay = 0.02  # the baseline's machine gets warm meanwhile
            await original(*args)

        half.complete = slower
        assert evalkit("bench", path, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "beyond the limit of 2.0%: no speeds are compared" in printed
    assert "faster" not in printed
    result = json.loads((out / "bench.json").read_text())
    assert not result["drift"]["holds"]
    assert all(arm["ratios"] == {} for arm in result["arms"])


def test_one_set_of_machines_started_anew_for_every_arm(paper_checkpoint, tmp_path, capsys):
    """The seed's protocol: baseline, arm, baseline again, each with a start of its own."""
    out, path = tmp_path / "run", tmp_path / "recipe.toml"
    gone = "http://127.0.0.1:9"
    with server("{}", 0.01) as only:
        path.write_text(
            RECIPE.format(model=paper_checkpoint, off=only.url, half=only.url, other=gone)
        )
        small = ["--set", "bench.requests=6", "--set", "bench.max_drift=9", "--out", out]
        assert evalkit("bench", path, *small) == 0
        assert "1/2: not engaged" in capsys.readouterr().out
        only.reports, only.piece_delay = sglang(HALF), 0.001
        assert evalkit("bench", path, *small, "--add") == 0
        assert "; quality NOT EVALUATED" in capsys.readouterr().out
        only.reports, only.piece_delay = sglang("{}"), 0.01
        assert evalkit("bench", path, *small, "--add") == 0
        result = {a["name"]: a for a in json.loads((out / "bench.json").read_text())["arms"]}
        assert result["OFF"]["speed"]["succeeded"] == 18  # first, closing, and after the restart
        assert result["1/2"]["speed"]["succeeded"] == 6
        assert result["1/2"]["ratios"]["whole"]["value"] > 0
        assert result["1/2"]["engagement"] == "unknown"  # as it was when it was measured
        assert result["1/2, other build"]["speed"] is None
        assert len({json.dumps(body["prompt"]) for body in only.seen}) == len(only.seen)
        assert evalkit("bench", path, *small, "--add", "--set", "bench.concurrency=2") == 2
        assert "another load was measured here" in capsys.readouterr().err


def test_an_interrupt_is_said_and_ends_as_shells_have_it(tmp_path, capsys, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("evalkit.bench.runner.measure_arms", stop)
    path = tmp_path / "recipe.toml"
    text = RECIPE.format(model=tmp_path, off="http://a", half="http://b", other="http://c")
    path.write_text(text, encoding="utf-8")
    assert evalkit("bench", path, "--out", tmp_path / "run") == 130
    said = capsys.readouterr().err
    assert said == "evalkit: interrupted: nothing is reported; run it again\n"


def test_what_cannot_be_measured_is_said(paper_checkpoint, tmp_path, capsys):
    out, path = tmp_path / "run", tmp_path / "recipe.toml"
    with server("{}", 0.0) as off, server(HALF, 0.0) as half:
        text = RECIPE.format(model=paper_checkpoint, off=off.url, half=half.url, other=half.url)
        path.write_text(text.partition("[bench]")[0])
        assert evalkit("bench", path, "--out", out) == 2
        assert "the recipe has no [bench] section" in capsys.readouterr().err
        path.write_text(text)
        assert evalkit("bench", path, "--out", out, "--again") == 2
        assert "no measurement here" in capsys.readouterr().err
        assert evalkit("bench", path, "--out", out, "--set", "engine.kind=oracle") == 2
        assert "set engine.kind = openai_server" in capsys.readouterr().err
        assert evalkit("bench", path, "--out", out, "--set", "compare.baseline=1/4") == 2
        assert "baseline 1/4: not engaged" in capsys.readouterr().err
    assert RunStore(out).exists is False


def test_the_load_is_not_part_of_a_runs_identity(paper_checkpoint, tmp_path):
    from evalkit.config.run import RunConfig
    from evalkit.core.recipe import load as read
    from evalkit.run.plan import identity, plan

    path = tmp_path / "recipe.toml"
    path.write_text(
        RECIPE.format(model=paper_checkpoint, off="http://a", half="http://b", other="http://c")
    )
    one = identity(plan(read(path, RunConfig), tmp_path))
    two = identity(plan(read(path, RunConfig, ["bench.requests=9"]), tmp_path))
    assert one == two
