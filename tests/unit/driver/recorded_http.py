# SPDX-License-Identifier: Apache-2.0
"""`RecordedHttp`: in place of the network, answers that a test wrote."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer, PlainHttp
from tests.support.manual_clock import ManualClock


class RecordedHttp(PlainHttp):
    """Gives answers in turn, and keeps what was sent: method, address, headers, body, query.

    :param answers: status, data, and maybe headers, as `answer` takes them.
    :param again: the last answer is given again and again.
    """

    def __init__(self, *answers: Any, again: bool = False) -> None:
        self.clock = ManualClock()
        self.answers: list[HttpAnswer | NoAnswer] = []
        self.sent: list[tuple[str, str, dict[str, str], str, dict[str, str]]] = []
        self._again = again
        for status, data, *headers in answers:
            self.answer(data, status, *headers)

    def answer(self, data: Any = None, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """:param data: becomes JSON, unless it is the content itself. ``status`` 0 = there is no answer."""
        content = data if isinstance(data, bytes) else (data if isinstance(data, str) else json.dumps(data)).encode()
        kind = "text/html" if content[:1] == b"<" else "application/json; charset=utf-8"
        made = HttpAnswer(status, {"Content-Type": kind, **(headers or {})}, content)
        self.answers.append(made if status else NoAnswer("no answer", maybe_done=True))

    def token(self, token: str, seconds: float = 3600) -> None:
        self.answer({"access_token": token, "expires_in": seconds})

    def send(
        self, method: str, url: str, headers: Any, body: Any = None, query: Any = None, seconds: float = 0.0
    ) -> HttpAnswer:
        self.sent.append((method, url, dict(headers), (body or b"").decode(), dict(query or {})))
        answer = self.answers[0] if self._again and len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    @property
    def asked(self) -> list[str]:
        """Methods and addresses."""
        return [f"{method} {url}" for method, url, *_ in self.sent]

    @property
    def forms(self) -> list[dict[str, str]]:
        """What stood in bodies that are forms, else in queries."""
        return [{name: values[0] for name, values in parse_qs(body).items()} or query for *_, body, query in self.sent]

    def close(self) -> None:
        """Nothing is open."""
