# SPDX-License-Identifier: Apache-2.0
"""Base of the clouds that no simulator plays: a double that answers what the driver asks, and keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from tests.functional.released_drivers.cloud import Cloud, Surroundings
from tests.functional.released_drivers.http_double import Answer, Call, HttpDouble
from tests.support.certificates import make_certificates

#: What answers one kind of call; it gets what the groups of the route's pattern matched.
Handler = Callable[..., Answer]


class RecordingCloud(Cloud):
    """Answers calls to the real cloud's addresses.

    A call that no route answers gets 404 and is an error of the row: the driver asks for what the double does not know.
    """

    kind: ClassVar[str] = "recording double"
    #: Host names of the cloud.
    hosts: ClassVar[tuple[str, ...]]

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        made = make_certificates(self.directory / "certificates", self.hosts)
        self.double = HttpDouble(self._answer, (str(made.keystore), str(made.keystore)))
        #: Method, pattern of the path with its query left out, and who answers.
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []
        #: Calls that nobody could answer.
        self.unknown: list[str] = []
        ca = str(made.ca)
        proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), self.double.url)
        trust = dict.fromkeys(("REQUESTS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "SSL_CERT_FILE"), ca)
        self.environment = {**proxies, **trust, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def route(self, method: str, pattern: str, handler: Handler) -> None:
        """Lets ``handler(call, *groups)`` answer calls whose whole path matches, whatever the case."""
        self._routes.append((method, re.compile(pattern, re.IGNORECASE), handler))

    def start(self) -> None:
        self.double.start()

    def stop(self) -> None:
        self.double.stop()

    def asked(self, method: str, pattern: str) -> list[Call]:
        """The calls whose path has this pattern."""
        found = re.compile(pattern, re.IGNORECASE)
        return [call for call in self.double.calls if call.method == method and found.search(call.path)]

    def trouble(self) -> str:
        return f"the double cannot answer: {self.unknown}" if self.unknown else ""

    def _answer(self, call: Call) -> Answer:
        for method, pattern, handler in self._routes:
            match = pattern.fullmatch(call.path.rstrip("/")) if method == call.method else None
            if match:
                return handler(call, *match.groups())
        self.unknown.append(f"{call.method} {call.host}{call.path}")
        return Answer(404, {"error": {"code": 404, "message": f"no double of {call.method} {call.path}"}})


def body_answer(body: Any) -> Handler:
    """Answers always the same."""
    return lambda call, *groups: Answer(body=body)
