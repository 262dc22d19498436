# SPDX-License-Identifier: Apache-2.0
"""EC2's protocol: a form as request, XML as answer. What belongs where says the service model of botocore."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from xml.sax.saxutils import escape

from simulators.base.messages import ApiError, Json

NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
#: Names of a form that say which call it is.
_ENVELOPE: Final = frozenset({"Action", "Version"})


class Markup(str):
    """XML that is inserted as it is; made once, for things that lists show again and again."""

    __slots__ = ()


# -- requests --


def read_form(form: Mapping[str, list[str]], shape: Any) -> Json:
    """The arguments of a call.

    :param form: names such as ``Filter.1.Value.2``.
    :param shape: of the operation's input; None = it takes no arguments.
    :raises ApiError: 400, an argument that the operation does not have, or a value of another type.
    """
    tree: dict[str, Any] = {}
    for name, values in form.items():
        if name in _ENVELOPE:
            continue
        place = tree
        *path, last = name.split(".")
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                raise _unknown(name)
            place = inner
        place[last] = values[0]
    if shape is None:
        if tree:
            raise _unknown(next(iter(tree)))
        return {}
    content: Json = _read(tree, shape, "")
    return content


def _read(value: Any, shape: Any, name: str) -> Any:
    kind = shape.type_name
    if kind == "structure":
        return _read_structure(value, shape, name)
    if kind == "list":
        return _read_list(value, shape, name)
    if isinstance(value, dict):
        raise _unknown(f"{name}.{next(iter(value))}")
    return _read_scalar(value, kind, name)


def _read_structure(value: Any, shape: Any, name: str) -> Json:
    if not isinstance(value, dict):
        raise _unknown(name)
    known = {_request_name(member, key): key for key, member in shape.members.items()}
    content: Json = {}
    for given, inner in value.items():
        whole = f"{name}.{given}" if name else given
        if given not in known:
            raise _unknown(whole)
        content[known[given]] = _read(inner, shape.members[known[given]], whole)
    missing = [key for key in shape.required_members if key not in content]
    if missing:
        raise ApiError(400, f"The request must contain the parameter {missing[0]}", "MissingParameter")
    return content


def _read_list(value: Any, shape: Any, name: str) -> list[Any]:
    if not isinstance(value, dict) or not all(number.isdigit() for number in value):
        raise _unknown(name)
    return [_read(value[number], shape.member, f"{name}.{number}") for number in sorted(value, key=int)]


def _read_scalar(text: str, kind: str, name: str) -> Any:
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind == "blob":
            return base64.b64decode(text, validate=True)
        if kind == "timestamp":
            return datetime.fromisoformat(text)
    except (ValueError, KeyError, binascii.Error):
        raise ApiError(400, f"Value ({text}) for parameter {name} is invalid.", "InvalidParameterValue") from None
    return text


def _request_name(member: Any, key: str) -> str:
    serialization = member.serialization
    if "queryName" in serialization:
        return str(serialization["queryName"])
    if "name" in serialization:
        name = str(serialization["name"])
        return name[0].upper() + name[1:]
    return key


def _unknown(name: str) -> ApiError:
    return ApiError(400, f"The parameter {name} is not recognized", "UnknownParameter")


# -- answers --


def write_answer(operation: str, content: Json, shape: Any, request_id: str) -> bytes:
    """The XML of an answer.

    :param content: by the names of the service model; what is None is left out.
    :param shape: of the operation's output; None = it says nothing.
    :raises KeyError: a name that the service model does not have.
    """
    inner = "<return>true</return>" if shape is None else members(content, shape)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{NAMESPACE}">'
        f"<requestId>{request_id}</requestId>{inner}</{operation}Response>"
    ).encode()


def write_error(code: str, message: str, request_id: str) -> bytes:
    """The XML of a refusal."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{escape(code)}</Code>'
        f"<Message>{escape(message)}</Message></Error></Errors><RequestID>{request_id}</RequestID></Response>"
    ).encode()


def members(content: Mapping[str, Any], shape: Any) -> Markup:
    """The members of a structure, without an element around them."""
    parts = []
    for key, value in content.items():
        member = shape.members[key]
        if value is not None:
            parts.append(_write(value, member, str(member.serialization.get("name", key))))
    return Markup("".join(parts))


def _write(value: Any, shape: Any, name: str) -> str:
    kind = shape.type_name
    if isinstance(value, Markup):
        return f"<{name}>{value}</{name}>"
    if kind == "structure":
        return f"<{name}>{members(value, shape)}</{name}>"
    if kind == "list":
        return f"<{name}>{_items(value, shape.member)}</{name}>"
    return f"<{name}>{_SCALARS.get(kind, _text)(value)}</{name}>"


def _items(values: Iterable[Any], shape: Any) -> str:
    name = str(shape.serialization.get("name", "item"))
    return "".join([_write(value, shape, name) for value in values])


def _text(value: Any) -> str:
    return escape(str(value))


def _boolean(value: Any) -> str:
    return "true" if value else "false"


def _time(value: Any) -> str:
    return iso_time(value) if isinstance(value, float) else escape(str(value))


def _blob(value: Any) -> str:
    return base64.b64encode(value).decode()


_SCALARS: Final[dict[str, Callable[[Any], str]]] = {"boolean": _boolean, "timestamp": _time, "blob": _blob}


def iso_time(seconds: float) -> str:
    """A moment, given in seconds since the epoch, as AWS writes it: milliseconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
