# SPDX-License-Identifier: Apache-2.0
"""Znode paths (reference/zookeeper 2), then the bytes of znodes (reference/zookeeper 1)."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from nodepool import fast_json
from nodepool.model.record import InvalidRecord

NODES: Final = "/nodepool/nodes"
REQUESTS: Final = "/nodepool/requests"
REQUEST_LOCKS: Final = "/nodepool/requests-lock"
IMAGES: Final = "/nodepool/images"
COMPONENTS: Final = "/nodepool/components"
ELECTIONS: Final = "/nodepool/elections"
STATUS: Final = "/nodepool/status"
MAINTENANCE: Final = "/nodepool/maintenance"
INSTALLATION: Final = "/nodepool/installation"
CANARIES: Final = "/nodepool/canaries"

#: Child that holds lock contenders; never a record.
LOCK: Final = "lock"
#: What Kazoo puts between the unique part and the sequence of a contender's name.
CONTENDER_MARK: Final = "__lock__"
_CONTENDER: Final = re.compile(rf"{CONTENDER_MARK}(-?\d{{10}})$")


def is_name(text: str) -> bool:
    """Can a znode have this name? Ids come out of JSON, where anything may stand, and ZooKeeper refuses the rest."""
    return text.isprintable() and "/" not in text and text not in ("", ".", "..")


def below(root: str, path: str) -> list[str]:
    """Names on the way from a znode to one below it; none for itself."""
    return path[len(root) + 1 :].split("/") if len(path) > len(root) else []


def contender_sequence(name: str) -> str | None:
    """What Kazoo orders the children of a lock directory by, the holder first; None = it leaves this one out."""
    found = _CONTENDER.search(name)
    return None if found is None else found[1]


def node(node_id: str) -> str:
    return f"{NODES}/{node_id}"


def node_lock(node_id: str) -> str:
    return f"{NODES}/{node_id}/{LOCK}"


def request(request_id: str) -> str:
    return f"{REQUESTS}/{request_id}"


def request_lock(request_id: str) -> str:
    return f"{REQUEST_LOCKS}/{request_id}"


def election(name: str) -> str:
    return f"{ELECTIONS}/{name}"


def maintenance(kind: str, znode: str = "") -> str:
    """:param znode: `nodepool.model.status.znode_name` of a subject; empty = the directory of a kind."""
    return f"{MAINTENANCE}/{kind}/{znode}".rstrip("/")


def canary(build_id: str, provider_name: str, upload_id: str) -> str:
    """What is counted of a candidate."""
    return f"{CANARIES}/{build_id}:{provider_name}:{upload_id}"


def static_mutex(provider_name: str) -> str:
    """Guards registration of one static provider's hosts among launchers."""
    return f"{ELECTIONS}/static-{provider_name.replace('/', '_')}"


# Bytes of a znode to a JSON object and back (reference/zookeeper 1).

#: Lists and objects within each other. Records have four; each level costs stack when a record is copied or written,
#: and the reader's own limit is that of the stack.
MAX_DEPTH: Final = 50


#: A server closes the connection over which a longer packet comes (its default of jute.maxbuffer).
MOST_BYTES: Final = 1_048_575


class EmptyRecord(InvalidRecord):
    """The znode has no data: left by a lock on a node that was just deleted (rule C-8)."""


def encode(data: dict[str, Any]) -> bytes:
    """A JSON object as UTF-8. Numbers that JSON does not know are refused with ValueError."""
    return _ENCODER.encode(data).encode()


def decode(value: bytes | None) -> dict[str, Any]:
    """The JSON object in a znode.

    Numbers that JSON does not know, like ``Infinity``, become null: a record that has one can be written again.

    :raises EmptyRecord: no data.
    :raises InvalidRecord: not UTF-8, not JSON, not an object, or nested deeper than `MAX_DEPTH`.
    """
    if not value:
        raise EmptyRecord("no data")
    try:
        data = fast_json.loads(value)
    except ValueError:
        # It may be one of those that only the standard library reads; and errors are reported in its words.
        return _decode_slowly(value)
    return _checked(data, value.count(b"[") + value.count(b"{"))


def _decode_slowly(value: bytes) -> dict[str, Any]:
    try:
        return decode_text(value.decode())
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"not JSON: {str(error)[:200]}") from None


def decode_text(text: str) -> dict[str, Any]:
    """The JSON object in a text, such as ``user_data``; see `decode`. Raises InvalidRecord."""
    try:
        data = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {str(error)[:200]}") from None
    return _checked(data, text.count("[") + text.count("{"))


def _checked(data: Any, brackets: int) -> dict[str, Any]:
    """:param brackets: opening ones in the text. To count them is cheap, and enough for nearly every record."""
    if not isinstance(data, dict):
        raise InvalidRecord(f"a JSON {type(data).__name__}, not an object")
    if brackets > MAX_DEPTH and _is_deeper(data, MAX_DEPTH):
        raise InvalidRecord(f"nested more than {MAX_DEPTH} levels deep")
    return data


def _is_deeper(data: dict[str, Any], limit: int) -> bool:
    """Is there more than so many levels of lists and objects? Level by level, because the stack is what is short."""
    level: list[Any] = [data]
    for _ in range(limit):
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


#: Not orjson: it writes null for what JSON does not know, where an error is to be raised.
_ENCODER = json.JSONEncoder(allow_nan=False)
_DECODER = json.JSONDecoder(parse_float=_float, parse_constant=lambda _: None)
