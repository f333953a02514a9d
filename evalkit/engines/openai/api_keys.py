"""API keys and server addresses: read late, never shown."""

from __future__ import annotations

import ipaddress
import logging
import os
from pathlib import Path
from urllib.parse import urlsplit

from evalkit.core.errors import EvalkitError

HIDDEN = "[key]"
_log = logging.getLogger("evalkit")


class Key:
    """An API key that does not print itself."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Key(…)" if self._value else "Key()"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        """The key itself, for the client alone; servers without keys get a placeholder."""
        return self._value or "none"

    def scrub(self, text: str) -> str:
        """A text without the key in it: servers echo what they refuse."""
        return text.replace(self._value, HIDDEN) if self._value else text


def read_key(variable: str | None, file: str | None) -> Key:
    """The key from an environment variable or a file; no key where neither is named.

    Raises:
        EvalkitError: the variable is not set, or the file cannot be read or is empty.
    """
    if variable is not None:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise EvalkitError(f"the environment variable {variable} holds no API key")
        return Key(value)
    if file is None:
        return Key("")
    try:
        value = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EvalkitError(f"API key file {file}: {getattr(error, 'strerror', error)}") from None
    if not value or len(value.split()) != 1:
        raise EvalkitError(f"API key file {file}: it must hold one key and nothing else")
    return Key(value)


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
        what = "prompts and the API key travel" if key else "prompts travel"
        _log.warning("%s is plain http to another machine: %s unencrypted", url, what)
