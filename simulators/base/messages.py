# SPDX-License-Identifier: Apache-2.0
"""What passes between the HTTP server and the services: requests, answers, and errors as answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]


class BodySink(Protocol):
    """Takes a body piece by piece, so that an image of many GiB never lies in memory."""

    def feed(self, data: bytes) -> None: ...


class SteeredSink:
    """A `BodySink` that says how it is fed.

    :ivar over: no more is taken. The request is served as it is, and its connection ends with the answer.
    """

    over = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        raise NotImplementedError

    def pause_seconds(self) -> float:
        """For how long no more is to be read."""
        return 0.0

    def abandon(self) -> None:
        """The body will not be complete, or its request was refused; any thread. Twice does nothing."""


@dataclass(slots=True)
class Request:
    """One HTTP request. Header names are in lower case; ``path`` is decoded and has no query."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes = b""
    #: Where the body went instead of ``body``.
    sink: BodySink | None = None

    def json(self) -> Json:
        """The body as an object.

        :raises ApiError: 400, it is none.
        """
        try:
            content = json.loads(self.body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ApiError(400, "Malformed request body: a JSON object is needed")
        return content

    def member(self, name: str) -> Json:
        """``{name: {...}}`` -> the inner object.

        :raises ApiError: 400, it is missing.
        """
        content = self.json().get(name)
        if not isinstance(content, dict):
            raise ApiError(400, f"Invalid input: '{name}' is a required property")
        return content

    def argument(self, name: str, default: str = "") -> str:
        """The first value of a query argument."""
        values = self.query.get(name)
        return values[0] if values else default


class AnswerStream:
    """The body of an answer that comes piece by piece. All methods but `wake` are called in the server's thread.

    :ivar over: nothing more comes.
    :ivar cut: with ``over``: the connection ends in the middle of the body.
    """

    over = False
    cut = False

    def open(self, wake: Callable[[], None]) -> None:
        """The head was sent. ``wake`` may be called in any thread, and has `take` called soon."""
        raise NotImplementedError

    def take(self) -> bytes:
        """What is to be sent now; may be nothing."""
        raise NotImplementedError

    def wait_seconds(self) -> float | None:
        """After which time `take` is called though nobody woke it; None = never."""
        return None

    def close(self) -> None:
        """The connection is over. May come twice."""


@dataclass(slots=True)
class Answer:
    """One HTTP answer.

    :param silence: None: it is sent. Else the connection is held for that many seconds and closed without an answer.
    :param cut: the headers promise more than ``body``, and the connection is closed after it.
    :param stream: sent in chunks instead of ``body``.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    silence: float | None = None
    cut: bool = False
    stream: AnswerStream | None = None


def json_answer(content: Any, status: int = 200, **headers: str) -> Answer:
    """An answer with a JSON body; ``_`` in header names stands for ``-``."""
    return Answer(
        status, json.dumps(content).encode(), {name.replace("_", "-"): text for name, text in headers.items()}
    )


class ApiError(Exception):
    """A service's refusal; each service gives it its own shape.

    :param kind: the cloud's name of the error where it has one, for example Neutron's ``OverQuota``.
    """

    def __init__(self, status: int, message: str, kind: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.headers = headers or {}


def new_id() -> str:
    """A new id in the form that all services use."""
    return str(uuid.uuid4())
