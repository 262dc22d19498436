# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.rest_calls` and ``retry_after``: pace, repeats, login, errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, retry_after
from nodepool.driver.framework.http import plain_http, rest_calls
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer
from nodepool.driver.framework.http.rest_calls import RestApi, RestCalls, same_server
from nodepool.driver.framework.rate import BucketSize

JSON = {"Content-Type": "application/json"}
FINE = HttpAnswer(200, JSON, b'{"a": 1}')


def refusal(status: int, **headers: str) -> HttpAnswer:
    return HttpAnswer(status, {**JSON, **{name.replace("_", "-"): text for name, text in headers.items()}}, b"{}")


class Http(plain_http.PlainHttp):
    """Answers what a test says, in turn; the last answer again and again."""

    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, Mapping[str, str], Any]] = []
        self.closed = False

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any = None, *_: Any) -> HttpAnswer:
        self.sent.append((method, url, headers, body))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


class Login:
    def __init__(self) -> None:
        self.token = 1

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def refused(self, headers: Mapping[str, str]) -> None:
        assert headers == self.headers()
        self.token += 1


class Api(RestApi):
    def seconds_left_alone(self, kind: str, answer: HttpAnswer) -> float | None:
        left = answer.headers.get("x-left")
        return 7.0 if left == "0" else None

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        if answer.status >= 500:
            return CloudAway(f"{head}: {answer.status}")
        return CloudRefused(f"{head}: {answer.status}", answer.status)


class Time:
    """A clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def make(time: Time) -> Callable[[Http], RestCalls]:
    def made(http: Http) -> RestCalls:
        calls = RestCalls("cloud-1", http, Api(), Login(), {}, BucketSize(100, 0), time)

        def wait(seconds: float | None = None) -> bool:
            time.slept.append(seconds or 0.0)
            time.now += seconds or 0.0
            return False

        calls.stopped.wait = wait  # type: ignore[assignment,method-assign]
        return calls

    return made


Make = Callable[[Http], RestCalls]


def test_a_call(make: Make) -> None:
    http = Http(FINE)
    answer = make(http).call("write", "POST", "http://c/x", "making x", body={"b": 2}, headers={"X": "y"})
    assert (answer.status, answer.data) == (200, {"a": 1})
    ((method, url, headers, body),) = http.sent
    assert (method, url, json.loads(body)) == ("POST", "http://c/x", {"b": 2})
    assert headers == {"X": "y", "Content-Type": "application/json", "Authorization": "Bearer 1"}


def test_ceiling(time: Time) -> None:
    """CM-5: calls of all classes together are spaced."""
    calls = RestCalls("cloud-1", Http(FINE), Api(), Login(), {}, BucketSize(100, 0), time, ceiling=2.0)

    def wait(seconds: float | None = None) -> bool:
        time.now += seconds or 0.0
        return False

    calls.stopped.wait = wait  # type: ignore[assignment,method-assign]
    begun = time.now
    for kind in ("read", "write", "read", "write", "delete"):
        calls.call(kind, "GET", "http://c/x", "reading x")
    assert time.now - begun == pytest.approx(2.0)


def test_no_content(make: Make) -> None:
    assert make(Http(HttpAnswer(204, {}, b""))).call("w", "DELETE", "http://c/x", "deleting x").data is None


def test_what_is_no_json(make: Make) -> None:
    with pytest.raises(CloudAway, match="is it a proxy"):
        make(Http(HttpAnswer(200, {}, b"<html>"))).call("w", "POST", "http://c/x", "making x", body={})
    answer = make(Http(HttpAnswer(200, {"Content-Type": "text/plain"}, b"abc"))).call("r", "GET", "http://c/x", "x")
    assert answer.data == b"abc"


def test_refused(make: Make) -> None:
    http = Http(refusal(403))
    with pytest.raises(CloudRefused, match="Provider cloud-1: making x failed: 403"):
        make(http).call("w", "POST", "http://c/x", "making x", body={})
    assert len(http.sent) == 1


def test_throttled(make: Make, time: Time) -> None:
    """CM-5: the class waits as told, and the call is made again with the same content."""
    http = Http(refusal(429, Retry_After="3"), refusal(429), FINE)
    asked: list[int] = []
    make(http).call("w", "POST", "http://c/x", "making x", body={}, permit=lambda: asked.append(1))
    assert len(http.sent) == len(asked) == 3
    assert 3.0 <= time.slept[0] <= 3.2


def test_throttled_to_the_end(make: Make) -> None:
    http = Http(refusal(429, Retry_After="1"))
    with pytest.raises(CloudRefused, match="429"):
        make(http).call("w", "POST", "http://c/x", "making x", body={})
    assert len(http.sent) == rest_calls.THROTTLED_ATTEMPTS


def test_pieces_are_sent_once(make: Make) -> None:
    http = Http(refusal(429, Retry_After="1"))
    with pytest.raises(CloudRefused):
        make(http).call("w", "PUT", "http://c/x", "sending x", content=iter([b"a"]))
    assert len(http.sent) == 1


def test_class_that_is_used_up(make: Make, time: Time) -> None:
    """A cloud that tells that the next call would be throttled."""
    calls = make(Http(refusal(200, x_left="0"), FINE))
    calls.call("w", "POST", "http://c/x", "making x", body={})
    calls.call("r", "GET", "http://c/x", "reading x")
    assert time.slept == []
    calls.call("w", "POST", "http://c/x", "making x", body={})
    assert 7.0 <= sum(time.slept) <= 7.2


def test_reads_are_repeated(make: Make) -> None:
    http = Http(NoAnswer("no answer", True), refusal(503), FINE)
    assert make(http).call("r", "GET", "http://c/x", "reading x").data == {"a": 1}


@pytest.mark.parametrize("answer", [NoAnswer("no answer from c", True), refusal(500)])
def test_changes_are_not_repeated(make: Make, answer: HttpAnswer | Exception) -> None:
    """The call may have been carried out: that is the matter of the caller."""
    http = Http(answer)
    with pytest.raises(CloudAway) as caught:
        make(http).call("w", "POST", "http://c/x", "making x", body={})
    assert caught.value.maybe_done
    assert len(http.sent) == 1


def test_not_sent(make: Make) -> None:
    """Nobody there: the lists of the framework have a back-off of their own."""
    http = Http(NoAnswer("no answer from c: connection refused", False))
    with pytest.raises(CloudAway, match="connection refused") as caught:
        make(http).call("r", "GET", "http://c/x", "reading x")
    assert not caught.value.maybe_done
    assert len(http.sent) == 1


def test_old_token(make: Make) -> None:
    http = Http(refusal(401), FINE)
    make(http).call("w", "POST", "http://c/x", "making x", body={})
    assert [sent[2]["Authorization"] for sent in http.sent] == ["Bearer 1", "Bearer 2"]
    http = Http(refusal(401))
    with pytest.raises(CloudRefused, match="401"):
        make(http).call("w", "POST", "http://c/x", "making x", body={})
    assert len(http.sent) == 2


def test_not_wanted_any_more(make: Make) -> None:
    http = Http(FINE)

    def no() -> None:
        raise ValueError("not wanted")

    with pytest.raises(ValueError, match="not wanted"):
        make(http).call("w", "POST", "http://c/x", "making x", body={}, permit=no)
    assert http.sent == []


def test_stopped() -> None:
    http = Http(FINE)
    calls = RestCalls("cloud-1", http, Api(), Login(), {}, BucketSize(1, 0))
    calls.close()
    with pytest.raises(CloudAway, match="the provider was stopped") as caught:
        calls.call("r", "GET", "http://c/x", "reading x")
    assert not caught.value.maybe_done
    assert http.closed


def test_stopped_while_it_waits() -> None:
    calls = RestCalls("cloud-1", Http(refusal(429, Retry_After="50")), Api(), Login(), {}, BucketSize(1, 0))
    calls.stopped.wait = lambda seconds=None: True  # type: ignore[assignment,method-assign]
    with pytest.raises(CloudAway, match="the provider was stopped"):
        calls.call("w", "POST", "http://c/x", "making x", body={})


def test_log_has_no_secrets(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the token, nor a signature in the query."""
    with caplog.at_level(logging.DEBUG):
        make(Http(FINE)).call("r", "GET", "http://c/x?sig=secret", "reading x")
    assert "GET http://c/x: 200" in caplog.text
    assert "secret" not in caplog.text
    assert "Bearer" not in caplog.text


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("-3", 0.0), ("nonsense", None), ("", None)])
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": text}) == seconds


def test_retry_after_a_date() -> None:
    assert retry_after({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0.0
    later = retry_after({"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"})
    assert later is not None
    assert later > 1e9


@pytest.mark.parametrize(
    ("url", "ours", "same"),
    [
        # nextLink of Azure: https://github.com/Azure/azure-sdk-for-java/issues/36506
        ("https://management.azure.com:443/subscriptions/s?$skiptoken=x", "https://management.azure.com", True),
        ("https://Management.Azure.COM/subscriptions/s", "https://management.azure.com", True),
        ("https://management.azure.com/a", "https://management.azure.com:443/prefix", True),
        ("http://127.0.0.1:8080/a", "http://127.0.0.1:8080", True),
        ("http://[::1]:8080/a", "http://[::1]:8080", True),
        ("https://management.azure.com?a=b", "https://management.azure.com", True),
        ("http://management.azure.com/a", "https://management.azure.com", False),
        ("https://management.azure.com:80/a", "https://management.azure.com", False),
        ("http://127.0.0.1:8081/a", "http://127.0.0.1:8080", False),
        ("https://management.azure.com.example.org/a", "https://management.azure.com", False),
        # A login, and what programs read in different ways.
        ("https://management.azure.com:443@example.org/a", "https://management.azure.com", False),
        ("https://example.org\\@management.azure.com/a", "https://management.azure.com", False),
        ("https://management.azure.com\t.example.org/a", "https://management.azure.com", False),
        (" https://management.azure.com/a", "https://management.azure.com", False),
        ("/subscriptions/s", "https://management.azure.com", False),
        ("", "https://management.azure.com", False),
        (None, "https://management.azure.com", False),
    ],
)
def test_same_server(url: str | None, ours: str, same: bool) -> None:
    """No other server may see our token; RFC 3986, section 6.2, says what is the same."""
    assert same_server(url, ours) is same
