# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.plain_http`: a call has a bounded answer, or says that it has none."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.driver.framework.http import connections
from nodepool.driver.framework.http.plain_http import NoAnswer, PlainHttp
from tests.support.certificates import make_certificates
from tests.support.ports import free_ports
from tests.support.recording_server import OK, RecordingServer
from tests.support.slow_server import Pieces, SlowServer
from tests.unit.driver.framework.http.test_bounded import ENDLESS_ANSWERS, HEAD, TIMEOUT_SECONDS

MOVED = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def http() -> Iterator[PlainHttp]:
    made = PlainHttp(4)
    yield made
    made.close()


def test_what_is_sent(http: PlainHttp) -> None:
    with RecordingServer() as server:
        answer = http.send("POST", f"{server.url}/a", {"Authorization": "Bearer t"}, b'{"b": 1}', {"c": "d e"})
        assert (answer.status, answer.json(), answer.headers["content-type"]) == (200, {}, "application/json")
        (sent,) = server.sent
        assert sent.first == "POST /a?c=d+e HTTP/1.1"
        assert sent.body == b'{"b": 1}'
        assert sent.headers["authorization"] == "Bearer t"
        assert sent.headers["user-agent"].startswith("nodepool/")


def test_address_is_in_no_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some addresses are as good as a password: no library writes them, whatever level is configured."""
    talkative = logging.getLogger("urllib3")
    monkeypatch.setattr(talkative, "level", logging.DEBUG)
    http = PlainHttp(4)
    with RecordingServer() as server, caplog.at_level(logging.DEBUG):
        http.send("PUT", f"{server.url}/disk?sig=hidden", {}, b"")
    http.close()
    assert "hidden" not in caplog.text


def test_pieces(http: PlainHttp) -> None:
    """A file that is longer than the memory is sent piece by piece, with its length if that is known."""
    with RecordingServer() as server:
        http.send("PUT", server.url, {"Content-Length": "6"}, iter([b"abc", b"def"]))
        assert server.sent[0].body == b"abcdef"


def test_redirects_and_cookies(http: PlainHttp) -> None:
    """Neither is followed: a token must not go elsewhere."""
    with RecordingServer(lambda _: MOVED) as server:
        assert http.send("GET", server.url, {}).status == 302
        http.send("GET", server.url, {})
        assert "cookie" not in server.sent[1].headers


def test_netrc(http: PlainHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login me password secret\n", encoding="utf-8")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    with RecordingServer() as server:
        http.send("GET", server.url, {})
        assert "authorization" not in server.sent[0].headers


def test_proxy_of_the_environment(http: PlainHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordingServer() as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "")
        assert http.send("GET", "http://cloud.test/a", {}).status == 200
        assert server.sent[0].first == "GET http://cloud.test/a HTTP/1.1"


@pytest.mark.parametrize("name", sorted(ENDLESS_ANSWERS))
def test_endless_answers(http: PlainHttp, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer takes more memory or time than it may; the call may have been carried out."""
    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 1 << 20)
    pieces: Pieces
    pieces, pause = ENDLESS_ANSWERS[name]
    with SlowServer(pieces, pause) as server, pytest.raises(NoAnswer, match="no answer from") as caught:
        http.send("POST", server.url, {}, b"{}", seconds=TIMEOUT_SECONDS)
    assert caught.value.maybe_done


def test_closed_without_an_answer(http: PlainHttp) -> None:
    with RecordingServer(lambda _: b"") as server:
        with pytest.raises(NoAnswer, match=r"127\.0\.0\.1") as caught:
            http.send("POST", server.url, {}, b"{}")
        assert caught.value.maybe_done
        assert len(server.sent) == 1


def test_kept_connection_that_was_closed(http: PlainHttp) -> None:
    """O-19: only a call that reads is sent again."""
    answers = [OK, b"", OK]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        http.send("GET", server.url, {})
        assert http.send("GET", server.url, {}).status == 200
        answers[:] = [OK, b""]
        http.send("GET", server.url, {})
        with pytest.raises(NoAnswer):
            http.send("POST", server.url, {}, b"{}")


def test_nobody_there(http: PlainHttp) -> None:
    (port,) = free_ports(1)
    with pytest.raises(NoAnswer, match=f"127.0.0.1:{port}.*connection refused") as caught:
        http.send("POST", f"http://127.0.0.1:{port}/x", {}, b"{}")
    assert not caught.value.maybe_done


def test_unknown_name(http: PlainHttp) -> None:
    with pytest.raises(NoAnswer, match=r"nohost\.invalid.*cannot be resolved") as caught:
        http.send("POST", "http://user:secret@nohost.invalid/x?sig=secret", {}, b"{}")
    assert not caught.value.maybe_done
    assert "secret" not in str(caught.value)


def test_no_address(http: PlainHttp) -> None:
    with pytest.raises(NoAnswer, match="no answer from nonsense") as caught:
        http.send("GET", "nonsense", {})
    assert not caught.value.maybe_done


def test_certificates_are_verified(http: PlainHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.keystore)
    with SlowServer(lambda: [HEAD + b"Content-Length: 2\r\n\r\n{}"], tls=context) as server:
        with pytest.raises(NoAnswer, match="certificate is not accepted") as caught:
            http.send("POST", server.url, {}, b"{}")
        assert not caught.value.maybe_done
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca))
        other = PlainHttp(1)
        assert other.send("GET", server.url, {}).json() == {}
        other.close()
