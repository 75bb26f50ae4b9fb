"""Redaction: what is in a log event, without PEM blocks, users of addresses and passwords.

Values are looked at before a line is made of them: there quotes and line ends are what they are,
and half a secret, which nobody would recognise, does not occur. A log cannot know every secret; it
knows the shapes in which clients, drivers and settings hand them over. In doubt more is left out.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final = r"(?:password|passwd|passphrase|secret)[\w.-]{0,64}"
_REST: Final = r"""[^\s,;:&\\"'(){}\[\]]*"""  # the quotes may have been a part of it
_PEM: Final = re.compile(r'-----BEGIN [A-Z0-9 ]+-----[^"]*?(?:-----END [A-Z0-9 ]+-----|(?=")|\Z)')
# A password may hold what should be percent-encoded: so up to the last @, but where another address
# of a list of the same kind begins.
_USER: Final = re.compile(
    r"(?P<scheme>\b(?P<name>[a-zA-Z][a-zA-Z0-9+.-]{0,30})://)(?:(?!,(?P=name)://)\S){1,512}@"
)
# PGPASSWORD=x, password: x, 'sasl.password': 'x', {\"ssl.key.password\": \"x\"}. A value in quotes
# ends with the same ones, and may hold them behind a backslash; one that was cut off has no end.
_PASSWORD: Final = re.compile(
    rf"""
    (?P<name>{_NAMES}\\*["']?\s*[=:]\s*)
    (?:
        (?P<plain>["'])  (?: \\. | (?!(?P=plain)). )*  (?:(?P=plain)|\Z)  {_REST}
      | (?P<escaped>\\["'])  (?: \\\\\\?. | (?!(?P=escaped)). )*  (?:(?P=escaped)|\Z)  {_REST}
      | [^\s"']\S*
    )
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_DEPTH_MAX: Final = 5  # somebody's list may hold itself
_SECRET_KEY: Final = re.compile(_NAMES + r"\Z", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return the text without PEM blocks, without user and password of URLs, without passwords."""
    text = _PEM.sub("[PEM]", text)
    text = _USER.sub(r"\g<scheme>***@", text)
    return _PASSWORD.sub(r"\g<name>***", text)


def cleaned(event: Mapping[Any, Any], depth: int = 0) -> dict[Any, Any]:
    """Return the event without secrets, also in what its values hold."""
    return {
        key: "***"
        if value is not None and isinstance(key, str) and _SECRET_KEY.search(key)
        else _clean(value, depth)
        for key, value in event.items()
    }


def text_of(value: object) -> str:
    """Return ``str(value)``, or what kept it from being told: the event matters more."""
    try:
        return str(value)
    except Exception as failure:  # somebody's object
        return f"<{type(value).__name__}: {type(failure).__name__} in str()>"


def _clean(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth < _DEPTH_MAX:
        if type(value) is dict:
            return cleaned(value, depth + 1)
        if type(value) in (list, tuple):
            return type(value)(_clean(item, depth + 1) for item in value)
    return without_secrets(text_of(value))
