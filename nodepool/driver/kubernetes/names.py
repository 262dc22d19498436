# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes takes as names and labels. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

#: Most characters of a name in DNS, and of a label's value.
MAX_CHARACTERS: Final = 63
#: Characters of a pool's name: ``-`` and ten digits of the node's id follow.
MAX_POOL_CHARACTERS: Final = MAX_CHARACTERS - 11

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_FOREIGN: Final = re.compile(r"[^-A-Za-z0-9_.]")

DNS_LABEL_TEXT: Final = "small letters, digits and hyphens, a letter or digit at both ends"
LABEL_VALUE_TEXT: Final = f"at most {MAX_CHARACTERS} letters, digits, '-', '_' and '.', a letter or digit at both ends"


def is_dns_label(name: str, longest: int = MAX_CHARACTERS) -> bool:
    """May a namespace, or a container, have the name?"""
    return len(name) <= longest and _DNS_LABEL.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """May a label of an object have the value?"""
    return len(value) <= MAX_CHARACTERS and _LABEL_VALUE.fullmatch(value) is not None


def is_key(name: str) -> bool:
    """May a label or an annotation have the name: ``name``, or ``domain/name``?"""
    domain, slash, rest = name.rpartition("/")
    if slash and (len(domain) > 253 or _DNS_SUBDOMAIN.fullmatch(domain) is None):
        return False
    return bool(rest) and is_label_value(rest)


def as_text(value: Any) -> str:
    """A value of YAML as Kubernetes takes it: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def mangled(value: str) -> str:
    """The nearest value that a label may have.

    Each other character becomes ``_``; what is no letter or digit is cut off at both ends; 63 characters are kept.
    """
    return _FOREIGN.sub("_", value).strip("-_.")[:MAX_CHARACTERS].rstrip("-_.")
