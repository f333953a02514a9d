"""What a secret is, and texts without them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.core import secrets
from evalkit.core.files import append_jsonl, json_rows, read_object, write_atomic, write_object
from evalkit.core.printable import printable
from evalkit.core.secrets import HIDDEN, hide, learn, names_secret, redact, redact_message


@pytest.mark.parametrize(
    "name",
    [
        *("--api-key", "HF_TOKEN", "xApiKey", "password", "Authorization", "COOKIE", "hftoken"),
        *("OPENAI_API_KEY_2", "client_secret", "AWS_ACCESS_KEY_ID", "key", "--token", "api_keys"),
    ],
)
def test_names_of_secrets(name):
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("max_tokens", "--tokenizer-path", "eos_token", "stop_token_ids", "api_key_file", "--tp"),
        *("--ssl-keyfile", "--skip-tokenizer-init", "monkey_business", "--token-type", "keyboard"),
    ],
)
def test_names_of_other_things(name):
    assert not names_secret(name)


def test_prose_and_key_phrases_are_no_secrets():
    recipe = {"tasks": [{"key_phrases": ["a sandwich"], "key": "apple pie", "token": "word"}]}
    assert hide(recipe) == recipe
    for text in ("KeyError: 'layers'", "unexpected token: end of file", "max token: 4096"):
        assert redact_message(text) == text


def test_what_a_flag_is_followed_by():
    flags = ["--api-key", "first-1", "second-2", "--tp", "8", "--admin-token=third-3", "-v", "x"]
    hidden = ["--api-key", HIDDEN, HIDDEN, "--tp", "8", f"--admin-token={HIDDEN}", "-v", "x"]
    assert hide({"flags": flags}) == {"flags": hidden}
    assert redact("first-1, second-2, third-3, 8") == f"{HIDDEN}, {HIDDEN}, {HIDDEN}, 8"


def test_hiding_twice_is_hiding_once():
    recipe = {
        "extra_body": {
            "a": [{"api_key": "one-111"}],
            "text": 'curl -H "Authorization: Bearer t1o2"',
        },
        "environment": {"TOKEN": "two-222", "N": "1"},
        "urls": ["https://h/v1?sig=three-333", "http://u:four-444@h/"],
    }
    once = hide(recipe)
    assert hide(once) == once
    assert not any(f"{i}{i}{i}" in json.dumps(once) for i in range(1, 5))


def test_short_and_plain_values_are_hidden_in_place_only():
    assert hide({"environment": {"TOKEN": "abc"}}) == {"environment": {"TOKEN": HIDDEN}}
    assert hide({"flags": ["--use-token", "true"]}) == {"flags": ["--use-token", "true"]}
    assert redact("abc, true") == "abc, true"


def test_encoded_and_cut_values_are_found():
    learn({"password": 'p&ss "w"/rd<1>'})
    for form in ("p%26ss%20%22w%22%2Frd%3C1%3E", "p&amp;ss &quot;w&quot;/rd&lt;1&gt;"):
        assert redact(f"a {form} b") == f"a {HIDDEN} b"
    assert redact(json.dumps({"x": 'p&ss "w"/rd<1>'})) == json.dumps({"x": HIDDEN})
    learn({"api_key": "sk-0123456789abcdef"})
    assert redact("the key is sk-0123456789ab") == f"the key is {HIDDEN}"
    assert redact("the key is sk-0123") == "the key is sk-0123"


@given(st.text(min_size=secrets.SHORTEST, max_size=30), st.text(), st.text())
def test_a_told_secret_is_in_no_redacted_text(secret, before, after):
    secrets.forget()
    secrets.learn_value(secret)
    told = secret.strip().strip("\"'")
    if len(told) < secrets.SHORTEST or secrets._PLAIN.fullmatch(told) or told in HIDDEN:
        return
    text = redact(before + told + after)
    assert told not in text.replace(HIDDEN, "\0") or told in before + after


def test_no_record_holds_one_and_their_fields_stay(tmp_path):
    learn({"password": "completion"})
    append_jsonl(tmp_path / "rows.jsonl", [{"completion": "a completion", "n": [{"b": 1.5}]}])
    assert json_rows(tmp_path / "rows.jsonl") == [{"completion": "a [key]", "n": [{"b": 1.5}]}]
    write_object(tmp_path / "run.json", {"completion": ["completion"]})
    assert read_object(tmp_path / "run.json") == {"completion": [HIDDEN]}
    write_atomic(tmp_path / "report.md", "a completion\n")
    assert (tmp_path / "report.md").read_text() == "a [key]\n"


def test_hostile_messages_are_read_once():
    for text in ("a" * 200_000, "key " * 50_000, "--a=" * 50_000, '"' * 200_000, "a://" * 50_000):
        redact_message(text)


def test_control_characters_are_spelled_out():
    foreign = "a\x1b[31m \x1b]0;title\x07 \u202etxt.exe \r\x00\x9b \ud800 b\tc\nd é 👩‍🚀"
    spelled = (
        r"a\x1b[31m \x1b]0;title\x07 \u202etxt.exe \x0d\x00\x9b \ud800 b"
        "\tc\nd é 👩‍🚀"
    )
    assert printable(foreign) == spelled
    printable(foreign).encode()


@pytest.mark.parametrize(
    "token", ["</think>", "<|image|>", "[/THINK]", "<\uff5ctool\u2581sep\uff5c>"]
)
def test_special_tokens_that_a_server_reports_stay_in_answers(token):
    learn({"server": {"think_end_token": token}, "environment": {"STOP_TOKEN_KEY": token}})
    assert redact(f"a thought {token} an answer") == f"a thought {token} an answer"
