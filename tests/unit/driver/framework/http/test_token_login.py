# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.rest_calls`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import botocore.session
import pytest
from google.auth.compute_engine import _metadata
from google.auth.exceptions import TransportError

from nodepool.driver.aws.transport import AwsTransport
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer, PlainHttp
from nodepool.driver.framework.http.rest_calls import (
    REFUSED_SECONDS,
    RENEW_SECONDS,
    TokenLogin,
    keep_metadata_direct,
    login_error,
)
from nodepool.driver.gce.client import GoogleTransport
from tests.support.manual_clock import ManualClock

LIFE = 3600.0


class Login(TokenLogin):
    """Answers with what the test wrote: tokens, and errors."""

    def __init__(self, clock: ManualClock, *answers: str | Exception) -> None:
        super().__init__("north", clock)
        self.answers = list(answers)
        self.life = LIFE

    def ask(self) -> tuple[str, float]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, self.life

    def token(self) -> str:
        return self.headers()["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_renewed_before_its_end(clock: ManualClock) -> None:
    login = Login(clock, "one", "two")
    assert login.token() == login.token() == "one"
    clock.now += LIFE - RENEW_SECONDS - 1
    assert login.token() == "one"
    clock.now += 1
    assert login.token() == "two"


def test_short_life(clock: ManualClock) -> None:
    """At half of it, not at each call."""
    login = Login(clock, "one", "two")
    login.life = 60
    assert login.token() == "one"
    clock.now += 29
    assert login.token() == "one"
    clock.now += 1
    assert login.token() == "two"


def test_away_while_the_token_is_valid(clock: ManualClock) -> None:
    """The present one is used on; somebody asks again after a while."""
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    clock.now += LIFE - RENEW_SECONDS
    assert login.token() == login.token() == "one"
    clock.now += REFUSED_SECONDS
    assert login.token() == "two"


def test_away_after_its_end(clock: ManualClock) -> None:
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    clock.now += LIFE
    with pytest.raises(CloudAway, match="no answer"):
        login.token()
    assert login.token() == "two"


def test_refused_credentials_are_not_tried_again_at_once(clock: ManualClock) -> None:
    login = Login(clock, LoginRefused("wrong", "401"), "one")
    for _ in range(3):
        with pytest.raises(LoginRefused, match="wrong"):
            login.token()
    clock.now += REFUSED_SECONDS
    assert login.token() == "one"


def test_refused_while_the_token_is_valid(clock: ManualClock) -> None:
    """It works until its end; then nothing does."""
    login = Login(clock, "one", LoginRefused("wrong", "401"), LoginRefused("wrong", "401"))
    login.token()
    clock.now += LIFE - RENEW_SECONDS
    assert login.token() == login.token() == "one"
    clock.now += RENEW_SECONDS
    with pytest.raises(LoginRefused, match="wrong"):
        login.token()


def test_nobody_with_a_valid_token_waits_for_the_next_one(clock: ManualClock) -> None:
    meanwhile: list[str] = []

    class Slow(Login):
        def ask(self) -> tuple[str, float]:
            if self.answers == ["two"]:
                other = threading.Thread(target=lambda: meanwhile.append(self.token()))
                other.start()
                other.join(10)
            return super().ask()

    login = Slow(clock, "one", "two")
    login.token()
    clock.now += LIFE - RENEW_SECONDS
    assert login.token() == "two"
    assert meanwhile == ["one"]


def test_those_without_a_token_wait_for_one_call() -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow(Login):
        def ask(self) -> tuple[str, float]:
            asked.set()
            assert go_on.wait(10)
            return super().ask()

    login = Slow(ManualClock(), "one")
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(login.token)
        assert asked.wait(10)
        others = [threads.submit(login.token) for _ in range(2)]
        go_on.set()
        assert [each.result(10) for each in (first, *others)] == ["one"] * 3


def test_those_who_waited_for_no_answer_do_not_ask_again() -> None:
    """Each call takes until its timeout."""
    asked, go_on, waiting = threading.Event(), threading.Event(), threading.Semaphore(0)

    class Clock(ManualClock):
        def __call__(self) -> float:
            waiting.release()
            return super().__call__()

    class Slow(Login):
        def ask(self) -> tuple[str, float]:
            asked.set()
            assert go_on.wait(10)
            return super().ask()

    clock = Clock()
    login = Slow(clock, CloudAway("no answer"), "one")
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(login.token)
        assert asked.wait(10)
        # That one has read the clock twice; each of the others does it once before it waits.
        others = [threads.submit(login.token) for _ in range(2)]
        assert all(waiting.acquire(timeout=10) for _ in range(2 + len(others)))
        clock.now += 60
        go_on.set()
        for each in (first, *others):
            with pytest.raises(CloudAway, match="no answer"):
                each.result(10)
    assert login.token() == "one"


def test_refused_by_many_calls_renewed_once(clock: ManualClock) -> None:
    login = Login(clock, "one", "two")
    old = login.headers()
    for _ in range(3):
        login.refused(old)
        assert login.token() == "two"


def test_token_that_the_cloud_refuses(clock: ManualClock) -> None:
    """It is not used on, even if there is no other."""
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    login.refused(login.headers())
    with pytest.raises(CloudAway):
        login.token()
    assert login.token() == "two"


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


def test_environment_that_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the builder runs see no change where there is no proxy, or none is used."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "inside.test")
    keep_metadata_direct()
    assert os.environ["no_proxy"] == "inside.test"
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("no_proxy", "*")
    keep_metadata_direct()
    assert os.environ["no_proxy"] == "*"


@pytest.mark.parametrize(
    ("status", "metadata", "kind"),
    [
        # https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token#error-handling
        *((404, True, CloudAway), (410, True, CloudAway), (429, True, CloudAway), (500, True, CloudAway)),
        *((400, True, LoginRefused), (403, True, LoginRefused)),
        *((404, False, LoginRefused), (410, False, LoginRefused), (429, False, CloudAway), (503, False, CloudAway)),
    ],
)
def test_metadata_service_that_is_not_ready(status: int, metadata: bool, kind: type[Exception]) -> None:
    """It is asked again; the file is not to blame."""
    error = login_error("login failed", HttpAnswer(status, {}, b""), "", "correct the file", metadata=metadata)
    assert type(error) is kind
    assert ("correct the file" in str(error)) is (kind is LoginRefused)
    assert ("assign an identity" in str(error)) is (metadata and kind is CloudAway)


def test_page_in_place_of_a_login() -> None:
    """A proxy that wants a login of its own, for example, says nothing about the credentials."""
    error = login_error("login failed", HttpAnswer(403, {}, b"<html>Blocked"), "", "correct the file", metadata=False)
    assert type(error) is CloudAway
    assert str(error) == "login failed; is it a proxy that answers there?"
