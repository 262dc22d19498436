# SPDX-License-Identifier: Apache-2.0
"""What the API server says when it refuses: objects of the kind ``Status``."""

from __future__ import annotations

from typing import Any

from simulators.base.messages import Answer, ApiError, Json
from simulators.kubernetes.kinds import ObjectKind
from simulators.kubernetes.wire import text_of

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
#: Texts of errors that rules ask for.
MESSAGES = {
    401: "Unauthorized",
    403: "forbidden: simulated",
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: etcdserver: request timed out",
    503: "the server is currently unable to handle the request",
    504: "Timeout: request did not complete within requested timeout",
}


class Refused(ApiError):
    """A refusal with what the API server tells beside the message.

    :param reason: one word; None = the usual one of the status.
    """

    def __init__(self, status: int, message: str, reason: str | None = None, details: Json | None = None) -> None:
        super().__init__(status, message, reason or REASONS.get(status, "Unknown"))
        self.details = details


def status_object(error: ApiError) -> Json:
    """The refusal as an object."""
    content: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.kind or REASONS.get(error.status, "Unknown"),
        "code": error.status,
    }
    details = getattr(error, "details", None)
    if details:
        content["details"] = details
    return content


def error_answer(error: ApiError) -> Answer:
    """The refusal as an answer."""
    return Answer(error.status, text_of(status_object(error)).encode(), dict(error.headers))


def _about(kind: ObjectKind, name: str) -> Json:
    details = {"name": name, "kind": kind.plural}
    return details | {"group": kind.group} if kind.group else details


def not_found(kind: ObjectKind, name: str) -> Refused:
    """There is no such object."""
    return Refused(404, f'{kind.resource} "{name}" not found', details=_about(kind, name))


def no_resource() -> Refused:
    """There is no such path."""
    return Refused(404, "the server could not find the requested resource", details={})


def already_exists(kind: ObjectKind, name: str) -> Refused:
    """There is one already."""
    return Refused(409, f'{kind.resource} "{name}" already exists', "AlreadyExists", _about(kind, name))


def conflict(kind: ObjectKind, name: str, text: str) -> Refused:
    """It is not what the client thinks it is."""
    return Refused(
        409, f'Operation cannot be fulfilled on {kind.resource} "{name}": {text}', details=_about(kind, name)
    )


def forbidden(kind: ObjectKind, name: str, text: str, causes: list[Json] | None = None) -> Refused:
    """Admission refuses this object."""
    details: dict[str, Any] = _about(kind, name)
    if causes:
        details["causes"] = causes
    return Refused(403, f'{kind.resource} "{name}" is forbidden: {text}', details=details)


def invalid(kind: ObjectKind, name: str, field: str, text: str, missing: bool = False) -> Refused:
    """A field is not as it must be."""
    reason = "FieldValueRequired" if missing else "FieldValueInvalid"
    details = _about(kind, name) | {"kind": kind.name, "causes": [{"reason": reason, "message": text, "field": field}]}
    return Refused(422, f'{kind.name} "{name}" is invalid: {field}: {text}', details=details)


def expired(text: str) -> Refused:
    """So old a state is not known any more."""
    return Refused(410, text)
