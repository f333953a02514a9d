"""API keys and server addresses: read late, never shown."""

from __future__ import annotations

import ipaddress
import logging
import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from evalkit.core.errors import EvalkitError
from evalkit.core.secrets import HIDDEN, learn_value, names_variable, redact, redact_message

_log = logging.getLogger("evalkit")


class Key:
    """An API key that does not print itself."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        learn_value(value)

    def __repr__(self) -> str:
        return "Key(…)" if self._value else "Key()"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        """The key itself, for the client alone; servers without keys get a placeholder."""
        return self._value or "none"

    def scrub(self, text: str) -> str:
        """A server's words without the key, or any other secret: servers echo what they refuse."""
        return redact_message(text.replace(self._value, HIDDEN) if self._value else text)


def read_key(variable: str | None, file: str | None) -> Key:
    """The key from an environment variable or a file; no key where neither is named.

    Raises:
        EvalkitError: the variable is not set, the file cannot be read, or what is there is no key.
    """
    if variable is not None:
        value = os.environ.get(variable, "").strip()
        if not value:
            # What is no name may be the key itself.
            name = f" {variable}" if names_variable(variable) else ""
            raise EvalkitError(
                f"api_key_env: the environment variable{name} holds no API key: set it, or name"
                " the one that does"
            )
        return _checked(value, f"api_key_env: the environment variable {variable}")
    if file is None:
        return Key("")
    try:
        value = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise EvalkitError(f"API key file {redact(file)}: {reason}") from None
    return _checked(value, f"API key file {file}")


def _checked(value: str, source: str) -> Key:
    """A key that can stand in a header: visible ASCII without spaces."""
    learn_value(value)
    if not value.isascii() or not value.isprintable() or len(value.split()) != 1:
        raise EvalkitError(
            f"{source}: it must hold one key and nothing else, in ASCII letters, digits and signs"
        )
    return Key(value)


def split_query(url: str) -> tuple[str, dict[str, str]]:
    """An address without its query, and what goes with every request: gateways take keys there."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="", fragment="")), dict(parse_qsl(parts.query))


def is_loopback(url: str) -> bool:
    """Whether a URL stays on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def warn_plain_http(url: str, key: Key) -> None:
    """Say once per call that prompts (and the key) travel unencrypted."""
    if urlsplit(url).scheme == "http" and not is_loopback(url):
        address, query = split_query(url)
        what = "prompts and the API key travel" if key or query else "prompts travel"
        _log.warning("%s is plain http to another machine: %s unencrypted", address, what)
