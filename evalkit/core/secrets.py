"""Secrets that this process was told, and texts without them.

A secret is what a key source holds (`api_key_env`, `api_key_file`), the value of a flag, an
environment entry or a request field whose name looks like one, and the user and the query of a URL.
Whatever is told is remembered by value, so that records, reports and lines of a terminal can be
written without it, wherever a server may have put it.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from evalkit.dsa.json_types import JsonObject, JsonValue

HIDDEN = "[key]"
SHORTEST = 6
"""Characters; a shorter value is hidden in its field, and not searched for in other texts."""

HOLDERS = frozenset({"extra_body", "headers", "flags", "environment"})
"""Sections of a recipe that hold what servers understand: there a bare `key` is one, too."""

_WORDS = frozenset(
    {"key", "keys", "apikey", "apikeys", "token", "secret", "secrets", "password", "passwords"}
    | {"passwd", "passphrase", "passcode", "authorization", "auth", "bearer", "cookie", "cookies"}
    | {"credential", "credentials", "jwt"}
)
_BARE = frozenset({"key", "keys", "token", "auth", "bearer", "cookie", "cookies"})
_ENDS = ("apikey", "token", "secret", "password")  # of words written together, such as HFTOKEN
_PLACES = frozenset({"env", "file", "path", "dir", "name", "type", "format", "parser", "ids"})
_TEXT_TOKENS = frozenset({"bos", "eos", "pad", "unk", "sep", "cls", "mask", "special", "stop"})
_PLAIN = re.compile(  # numbers, words, and special tokens or placeholders in brackets
    r"[-+]?[\d.]{0,9}|true|false|none|null|auto|<[^<>\s]*>|\[[^\[\]\s]*\]", re.IGNORECASE
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
_NAME = r"[A-Za-z][\w.-]{0,60}"  # bounded: a message may be long and hostile
# The value is matched only behind a name that looks like a secret's: it may reach to the end of the
# message, and to match it behind every name would take time by the square of the length.
_VALUE = re.compile(
    r"(?P<value>"
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:Bearer|Basic|Token)\s+[^\s"',;]+"""
    r"""|[^\s"',;&{}\[\]()-][^\s"',;&}\])]*"""
    r")"
)
_FLAG = re.compile(rf"(?P<name>--?{_NAME})[\"']?(?:=|,?\s+)")
_FIELD = re.compile(rf"(?P<name>{_NAME})[\"']?\s*[=:]\s*")
_COOKIE = re.compile(r"(?P<name>(?:set-)?cookie)[\"']?\s*:\s*[\"']?(?P<value>[^\"'\n]+)", re.I)
_BEARER = re.compile(r"(?P<name>Bearer)\s+(?P<value>(?=[^\s\"',;]*\d)[^\s\"',;]{6,})")
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}://[^\s\"'<>]+")

_known: set[str] = set()
_search: re.Pattern[str] | None = None


# -- what is one --------------------------------------------------------------------------------


def names_secret(name: str, *, bare: bool = True) -> bool:
    """Whether a field, flag or variable of this name holds a secret.

    Args:
        name: such as ``HF_TOKEN``, ``--api-key``, ``xApiKey``.
        bare: count names that hold such a word anywhere; without, the name must end in one, and
            a lone ``key`` or ``token`` is none (prose has those).
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _PLACES or (words[-1] == "token" and _TEXT_TOKENS & {*words}):
        return False
    if bare:
        return any(word in _WORDS or word.endswith(_ENDS) for word in words)
    last = words[-1]
    return (last in _WORDS or last.endswith(_ENDS)) and (len(words) > 1 or last not in _BARE)


def names_variable(text: str) -> bool:
    """Whether what stands as `api_key_env` can only be a name: it may then be shown."""
    known = text in os.environ or (_VARIABLE.fullmatch(text) and names_secret(text, bare=False))
    return bool(known)


def _is_key_pasted(name: str, value: str) -> bool:
    """Whether a key stands where the name of its source belongs."""
    if name == "api_key_env":
        return not names_variable(value)
    return name == "api_key_file" and not _is_there(value)


def _is_there(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


# -- telling ------------------------------------------------------------------------------------


def learn_value(secret: str) -> None:
    """Remember a secret, in the forms in which servers and libraries repeat it."""
    global _search  # noqa: PLW0603 - what a process was told is the process's
    text = secret.strip().strip("\"'")
    scheme, _, rest = text.partition(" ")
    forms = {text, rest.strip()} if scheme.lower() in ("bearer", "basic", "token") else {text}
    forms |= {part.partition("=")[2] for part in text.split("; ") if "=" in part}
    forms |= {unquote(form) for form in forms}
    forms |= {f for form in forms for f in (quote(form, safe=""), quote_plus(form))}
    forms |= {f for form in forms for f in (json.dumps(form)[1:-1], html.escape(form))}
    new = {form for form in forms if len(form) >= SHORTEST and not _PLAIN.fullmatch(form)}
    if not new <= _known:
        _known.update(new)
        longest_first = sorted(_known, key=len, reverse=True)
        _search = re.compile("|".join(map(re.escape, longest_first)))


def learn(data: object) -> None:
    """Remember every secret of a recipe, or of a part of one, as it was read."""
    hide(cast(JsonValue, data))


def forget() -> None:
    """Forget all secrets; tests begin so."""
    global _search  # noqa: PLW0603 - see `learn_value`
    _known.clear()
    _search = None


# -- texts and records without them -------------------------------------------------------------


def redact(text: str) -> str:
    """A text without the secrets that were told, and without the beginning of one at its end."""
    if _search is None:
        return text
    text = _search.sub(HIDDEN, text)
    for secret in _known:
        least = max(SHORTEST + 2, (len(secret) + 1) // 2)
        for size in range(len(secret) - 1, least - 1, -1):
            if text.endswith(secret[:size]):
                return text[:-size] + HIDDEN
    return text


def redact_strings(value: JsonValue) -> JsonValue:
    """JSON whose strings are redacted; its keys stay."""
    if _search is None:
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_strings(part) for key, part in value.items()}
    return [redact_strings(part) for part in value] if isinstance(value, list | tuple) else value


def redact_message(text: str) -> str:
    """What a server said, without secrets and without what looks like one."""
    return redact(_without_looks(text, bare=False))


def hide(value: JsonValue, *, inside: bool = False, secret: bool = False) -> JsonValue:
    """A recipe (or a part) with `HIDDEN` in the place of every secret; each is remembered.

    Args:
        value: as JSON.
        inside: it is what a server understands, see `HOLDERS`.
        secret: all of it is one.
    """
    if isinstance(value, Mapping):
        return dict(_hidden_fields(value, inside, secret))
    if isinstance(value, list | tuple):
        return list(_hidden_words(value, inside, secret))
    if not isinstance(value, str):
        return value
    if secret:
        return _hidden(value)
    return _without_looks(value, bare=True) if inside else _URL.sub(_without_query, value)


def hide_fields(data: JsonObject) -> dict[str, JsonValue]:
    """`hide` of an object."""
    return dict(_hidden_fields(data, False, False))


def _hidden(text: str) -> str:
    if text == HIDDEN or _PLAIN.fullmatch(text):
        return text
    learn_value(text)
    return HIDDEN


def _hidden_fields(data: JsonObject, inside: bool, secret: bool) -> Iterator[tuple[str, JsonValue]]:
    for key, value in data.items():
        pasted = isinstance(value, str) and _is_key_pasted(key, value)
        held = secret or pasted or names_secret(key, bare=inside)
        yield key, hide(value, inside=inside or key in HOLDERS, secret=held)


def _hidden_words(
    words: list[JsonValue] | tuple[JsonValue, ...], inside: bool, secret: bool
) -> Iterator[JsonValue]:
    """Of a list of arguments too: what follows a flag that looks like one is its value."""
    follows = False
    for word in words:
        if inside and isinstance(word, str) and word.startswith("-"):
            follows = "=" not in word and names_secret(word)
            yield hide(word, inside=True, secret=secret)
        else:
            yield hide(word, inside=inside, secret=secret or follows)


def _without_looks(text: str, *, bare: bool) -> str:
    """A text without values of flags and fields that look like secrets."""
    text = _URL.sub(_without_query, text)
    for pattern in (_COOKIE, _FLAG, _FIELD, _BEARER):
        at = 0
        while match := pattern.search(text, at):
            sure = pattern in (_COOKIE, _BEARER)
            whole = None
            if names_secret(match["name"], bare=bare or sure):
                whole = match if sure else _VALUE.match(text, match.end())
            value = whole["value"].strip("\"'") if whole else ""
            if whole and HIDDEN not in value:
                shown = _hidden(value)
                start = whole.start("value") + whole["value"].index(value)
                text = text[:start] + shown + text[start + len(value) :]
                at = start + len(shown)
            else:
                at = match.end("name")
    return text


def _without_query(match: re.Match[str]) -> str:
    """A URL without its user and with its query hidden."""
    url = match[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    user, at, _ = parts.netloc.rpartition("@")
    if at:
        for part in (user, *user.split(":", 1), base64.b64encode(unquote(user).encode()).decode()):
            learn_value(part)
        url = url.replace(f"{user}@", f"{HIDDEN}@", 1)
    query = parts.query
    if query and query != HIDDEN:
        pairs = parse_qsl(query) or [("", query)]
        for _, value in pairs:
            learn_value(value)
        url = url.replace(f"?{query}", f"?{HIDDEN}", 1)
    return url
