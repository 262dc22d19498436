# SPDX-License-Identifier: Apache-2.0
"""Calls of one provider to an API: pace, repeats, login, errors; and what an error says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from google.auth.compute_engine import _metadata
from google.auth.exceptions import TransportError

from nodepool.driver.aws.client import AwsTransport
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, retry_after
from nodepool.driver.framework.http import rest_calls
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer, PlainHttp
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.gce.client import GoogleTransport
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.tables import rows

#: In the directory above.
TABLES = str(Path(__file__).parent)
JSON = {"Content-Type": "application/json"}
FINE = HttpAnswer(200, JSON, b'{"a": 1}')
LOST = NoAnswer("no answer from c", True)


def refusal(status: int, **headers: str) -> HttpAnswer:
    return HttpAnswer(status, {**JSON, **{name.replace("_", "-"): text for name, text in headers.items()}}, b"{}")


class Http(PlainHttp):
    """Answers what a test says, in turn; the last answer again and again."""

    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, Mapping[str, str], Any]] = []

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any = None, *_: Any) -> HttpAnswer:
        self.sent.append((method, url, headers, body))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.answers = [LOST]


class TokenOfCalls:
    token = 1

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def refused(self, headers: Mapping[str, str]) -> None:
        assert headers == self.headers()
        self.token += 1


class Api(rest_calls.RestApi):
    def seconds_left_alone(self, kind: str, answer: HttpAnswer) -> float | None:
        return 7.0 if answer.headers.get("x-left") == "0" else None

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        text = f"{head}: {answer.status}"
        return CloudAway(text) if answer.status >= 500 else CloudRefused(text, answer.status)


class Calls:
    """:ivar slept: seconds of each wait, which pass at once."""

    def __init__(self, *answers: HttpAnswer | Exception, **options: Any) -> None:
        self.http, self.clock = Http(*answers), ManualClock().rules()
        self.calls = rest_calls.RestCalls(
            "cloud-1", self.http, Api(), TokenOfCalls(), {}, BucketSize(100, 0), **options
        )
        self.calls.stopped = ManualStop(self.clock)
        self.slept = self.calls.stopped.pauses

    def __call__(self, method: str = "POST", kind: str = "w", **named: Any) -> Any:
        return self.calls.call(kind, method, "http://c/x?sig=secret", "making x", **named)


@pytest.mark.parametrize(
    ("method", "body", "answers", "sent", "slept", "fails"),
    [
        # The class waits as it is asked to, and the call is made again with the same content.
        ("POST", {"body": {}}, [refusal(429, Retry_After="3"), refusal(429), FINE], 3, 3.0, None),
        ("POST", {"body": {}}, [refusal(429, Retry_After="1")], rest_calls.THROTTLED_ATTEMPTS, 5.0, "429"),
        ("PUT", {"content": iter([b"a"])}, [refusal(429, Retry_After="1")], 1, 0.0, "429"),
        # An old token.
        ("POST", {"body": {}}, [refusal(401), FINE], 2, 0.0, None),
        ("POST", {"body": {}}, [refusal(401)], 2, 0.0, "401"),
        # What only reads is made again; what else has no answer may have been done.
        ("GET", {}, [LOST, refusal(503), FINE], 3, 0.5, None),
        ("GET", {}, [LOST], 3, 0.5, "no answer from c"),
        ("GET", {}, [NoAnswer("connection refused", False)], 1, 0.0, "connection refused"),
        ("POST", {"body": {}}, [LOST], 1, 0.0, "no answer from c"),
        ("POST", {"body": {}}, [refusal(500)], 1, 0.0, "500"),
        ("POST", {"body": {}}, [refusal(403)], 1, 0.0, "Provider cloud-1: making x failed: 403"),
    ],
)
def test_repeats(method: str, body: Any, answers: list[Any], sent: int, slept: float, fails: str | None) -> None:
    """CM-5: what is made again, how often, and after which pauses; permission is asked each time."""
    calls = Calls(*answers)
    asked: list[int] = []
    if fails is None:
        assert calls(method, **body, permit=lambda: asked.append(1)).data == {"a": 1}
    else:
        with pytest.raises((CloudAway, CloudRefused), match=fails) as caught:
            calls(method, **body, permit=lambda: asked.append(1))
        if isinstance(caught.value, CloudAway):
            assert caught.value.maybe_done is (fails != "connection refused")
    assert len(calls.http.sent) == len(asked) == sent
    assert slept <= sum(calls.slept)
    assert bool(slept) == bool(calls.slept)
    tokens = [headers["Authorization"] for _, _, headers, _ in calls.http.sent]
    assert tokens == ["Bearer 1", "Bearer 2" if "401" in str(answers) else "Bearer 1", "Bearer 1"][:sent] or sent > 3


def test_pace_of_classes() -> None:
    """CM-5: a cloud that says that the next call would be throttled; and a ceiling for all classes together."""
    calls = Calls(refusal(200, x_left="0"), FINE)
    for kind in ("w", "r"):
        calls(kind=kind)
    assert calls.slept == []
    calls()
    assert 7.0 <= sum(calls.slept) <= 7.2
    spaced = Calls(FINE, ceiling=2.0)
    for kind in ("read", "write", "read", "write", "delete"):
        spaced("GET", kind)
    assert sum(spaced.slept) == pytest.approx(2.0)


@rows(TABLES, "retry_after")
def test_retry_after(text: str, seconds: float | None) -> None:
    found = retry_after({"Retry-After": text})
    assert found == seconds or (seconds == float("inf") and found is not None and found > 1e9)


@rows(TABLES, "same_server")
def test_same_server(url: str | None, ours: str, same: bool) -> None:
    """No other server may see our token; RFC 3986, section 6.2, says what is the same."""
    assert rest_calls.same_server(url, ours) is same


# -- tokens --

AWAY = CloudAway("no answer")


def _by_plain_http(url: str) -> Callable[[], Any]:
    def ask() -> None:
        with pytest.raises(NoAnswer):
            PlainHttp(1).send("GET", url, {})

    return ask


def _by_google_auth() -> None:
    with pytest.raises(TransportError):
        _metadata.get(GoogleTransport(PlainHttp(1)), "instance", retry_count=1)  # type: ignore[no-untyped-call]


def _by_botocore() -> None:
    session = botocore.session.Session()
    session.set_config_variable("metadata_service_num_attempts", 1)
    assert session.get_credentials() is None


@pytest.mark.parametrize(
    ("ask", "host"),
    [
        # https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
        (_by_plain_http("http://169.254.169.254/metadata/identity/oauth2/token"), "169.254.169.254"),
        # ibm_cloud_sdk_core's VPCInstanceAuthenticator, and the secure address of IBM's documentation
        (_by_plain_http("https://api.metadata.cloud.ibm.com/instance_identity/v1/token"), "api.metadata.cloud.ibm.com"),
        # google.auth.compute_engine._metadata._GCE_DEFAULT_MDS_HOSTS, and Google's address in IPv6
        (_by_google_auth, "metadata.google.internal"),
        (_by_plain_http("http://[fd20:ce::254]/computeMetadata/v1/"), "fd20:ce::254"),
        # botocore.utils: METADATA_BASE_URL, METADATA_BASE_URL_IPv6, ContainerMetadataFetcher._ALLOWED_HOSTS
        (_by_botocore, "169.254.169.254"),
        (_by_plain_http("http://[fd00:ec2::254]/latest/"), "fd00:ec2::254"),
        (_by_plain_http("http://169.254.170.2/v2/credentials"), "169.254.170.2"),
        (_by_plain_http("http://[fd00:ec2::23]/v1/credentials"), "fd00:ec2::23"),
        (_by_plain_http("http://metadata.test/latest/"), "metadata.test"),
        # All else goes on through the proxy.
        (_by_plain_http("http://cloud.test/"), "proxy.test"),
    ],
)
def test_metadata_services_are_asked_directly(
    ask: Callable[[], Any], host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A proxy of the environment would answer for itself, or with the identity of the machine that it runs on."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "inside.test")
    monkeypatch.setenv("GCE_METADATA_IP", "metadata.test:80")
    connected: list[str] = []

    def refuse(address: tuple[str, int], *_: Any, **__: Any) -> None:
        connected.append(address[0].strip("[]"))
        raise ConnectionRefusedError

    monkeypatch.setattr("urllib3.util.connection.create_connection", refuse)
    AwsTransport("north", "eu-north-1", None, 0).close()
    ask()
    assert set(connected) == {host}
