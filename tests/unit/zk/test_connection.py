# SPDX-License-Identifier: Apache-2.0
"""Why there is no connection: causes, sentences for operators, and files of `zookeeper-tls` that are wrong."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from nodepool.zk.client import CAUSE_SECONDS, Outage
from nodepool.zk.connection import (
    Cause,
    ConnectFailure,
    ConnectStep,
    ServerPlace,
    TlsFiles,
    cause_of,
    check_tls_files,
    furthest,
    is_hopeless,
    sentence,
    sentences,
)
from tests.support.certificates import make_certificates

FILES = TlsFiles("/tls/client.pem", "/tls/client.key", "/tls/ca.pem")
SERVER, OTHER = (ServerPlace(f"zk{number}.example.com", 2281) for number in (1, 2))
STEP = ConnectStep


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.lower().replace('_', ' ')} (_ssl.c:1006)")
    error.reason = reason
    return error


REFUSED = ConnectFailure(STEP.CONNECT, ConnectionRefusedError(111, "Connection refused"))
UNKNOWN_CA = ConnectFailure(STEP.SESSION, tls_error("TLSV1_ALERT_UNKNOWN_CA"))
BROKEN = ConnectionError("socket connection broken")


@pytest.mark.parametrize(
    ("step", "error", "cause", "words"),
    [
        # Those that a real server shows are in tests/integration/zk/test_client.py.
        (STEP.CONNECT, OSError(113, "No route to host"), Cause.UNREACHABLE, ["No route to host", "firewall"]),
        (STEP.CONNECT, TimeoutError("timed out"), Cause.SILENT, ["no answer (timed out)"]),
        (STEP.TLS_FILES, FileNotFoundError(2, "No such file"), Cause.TLS_FILES, []),
        (STEP.HANDSHAKE, tls_error("WRONG_VERSION_NUMBER"), Cause.NO_TLS, ["speak TLS", "(wrong version number)"]),
        (STEP.HANDSHAKE, TimeoutError("timed out"), Cause.SILENT, ["no answer (timed out)"]),
        (STEP.HANDSHAKE, tls_error("SSLV3_ALERT_BAD_CERTIFICATE"), Cause.CLIENT_CERTIFICATE, ["trust store"]),
        (STEP.HANDSHAKE, tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), Cause.HANDSHAKE, ["TLS handshake failed"]),
        # With TLS 1.3 the server looks at our certificate when we are ready already.
        (STEP.SESSION, tls_error("SSLV3_ALERT_CERTIFICATE_UNKNOWN"), Cause.CLIENT_CERTIFICATE, ["zookeeper-tls.cert"]),
        (STEP.SESSION, tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Cause.CLIENT_CERTIFICATE, ["(/tls/client.pem)"]),
        (STEP.SESSION, TimeoutError("nothing came in time"), Cause.SILENT, []),
        (STEP.SESSION, BROKEN, Cause.NOT_SERVING, ["does not serve", "its log"]),
    ],
)
def test_causes(step: ConnectStep, error: Exception, cause: Cause, words: list[str]) -> None:
    """One line each, with server, place in the configuration, and remedy."""
    failure = ConnectFailure(step, error)
    text = sentence(SERVER, 1, failure, FILES)
    assert cause_of(failure, tls=True) is cause
    assert text.startswith("ZooKeeper zk1.example.com:2281 (zookeeper-servers[1]): ")
    assert [word for word in (*words, "") if word not in text] == []
    assert "_ssl.c" not in text
    assert "\n" not in text


def test_sentences() -> None:
    """Of servers that were tried; of several addresses the furthest attempt says most; without TLS it may be wanted."""
    needs_tls = ConnectFailure(STEP.SESSION, BROKEN)
    assert cause_of(needs_tls, tls=False) is Cause.NEEDS_TLS
    assert "set zookeeper-tls: cert, key and ca" in sentence(SERVER, 0, needs_tls, None)
    six = sentence(ServerPlace("2001:db8::1", 2281), 0, REFUSED, None)
    assert six.startswith("ZooKeeper [2001:db8::1]:2281 (zookeeper-servers[0]): connection refused")
    assert furthest({"::1": REFUSED, "127.0.0.1": UNKNOWN_CA, "127.0.0.2": REFUSED}) is UNKNOWN_CA
    found = sentences([SERVER, OTHER], {OTHER: {"": REFUSED}, ServerPlace("old", 1): {"": REFUSED}}, FILES)
    assert [text.partition(": ")[0] for text in found] == ["ZooKeeper zk2.example.com:2281 (zookeeper-servers[1])"]


def test_hope() -> None:
    """A server that is down may come back; one that does not want our certificate will not."""
    lasting = {"": UNKNOWN_CA}
    rows: list[dict[ServerPlace, dict[str, ConnectFailure]]] = [
        *({}, {SERVER: lasting}, {SERVER: lasting, OTHER: {"": REFUSED}}),
        {SERVER: lasting, OTHER: {"::1": REFUSED, **lasting}},
    ]
    assert [is_hopeless([SERVER, OTHER], failures, FILES) for failures in rows] == [False, False, False, True]


def test_lines_of_an_outage() -> None:
    """J-4: once and then once a minute; at once when the cause is known; its end only if it was logged."""
    outage, refused = Outage(), ["zk1: connection refused"]
    outage.begin(100.0)
    assert outage.end(101.0) is None
    assert outage.line(200.0, refused, "zk1,zk2") is None
    outage.begin(200.0)
    assert outage.line(200.0 + CAUSE_SECONDS - 1, [], "zk1,zk2") is None
    waits = "No connection to ZooKeeper: no answer from zk1,zk2 yet"
    assert outage.line(200.0 + CAUSE_SECONDS, [], "zk1,zk2") == waits
    assert outage.end(210.0) == 10.0
    outage.begin(300.0)
    outage.begin(330.0)
    lines = [(now, line) for now in range(300, 425) if (line := outage.line(float(now), [*refused, "zk2"], "zk1,zk2"))]
    text = "No connection to ZooKeeper"
    several = ":\n" + "\n".join([*refused, "zk2"])
    times = [(300, several), (360, f" for 60 s{several}"), (420, f" for 120 s{several}")]
    assert lines == [(now, f"{text}{end}") for now, end in times]
    assert (outage.end(475.0), outage.end(476.0)) == (175.0, None)


# -- files of zookeeper-tls


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    made = make_certificates(tmp_path_factory.mktemp("certificates"))
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


def problems(files: TlsFiles) -> list[tuple[str, bool, str]]:
    return [(problem.name, problem.readable, problem.text) for problem in check_tls_files(files)]


def test_files_that_are_in_order(good: TlsFiles, tmp_path: Path) -> None:
    """Also with certificate and key in one file; what was wrong when they were used is mentioned."""
    both = tmp_path / "both.pem"
    both.write_bytes(Path(good.key).read_bytes() + Path(good.cert).read_bytes())
    assert problems(good) == problems(TlsFiles(str(both), str(both), good.ca)) == []
    text = sentence(SERVER, 0, ConnectFailure(STEP.TLS_FILES, tls_error("KEY_VALUES_MISMATCH")), good)
    assert "zookeeper-tls: cert, key and ca cannot be used (key values mismatch)" in text
    assert [path for path in good if path not in text] == []


@pytest.mark.parametrize("name", TlsFiles._fields)
@pytest.mark.parametrize(
    ("data", "readable", "words"),
    [(None, False, "there is no file"), (b"hello\n", True, "in PEM form"), (90, True, "is it cut off?")],
)
def test_file_that_is_wrong(
    good: TlsFiles, tmp_path: Path, name: str, data: bytes | int | None, readable: bool, words: str
) -> None:
    path = tmp_path / "file.pem"
    if data is not None:
        path.write_bytes(Path(getattr(good, name)).read_bytes()[:data] if isinstance(data, int) else data)
    ((found, can_be_read, text),) = problems(good._replace(**{name: str(path)}))
    assert (found, can_be_read, words in text) == (name, readable, True)


def test_files_that_do_not_belong_together(good: TlsFiles, tmp_path: Path) -> None:
    """A key of another certificate, key and certificate exchanged, and paths that are no files."""
    foreign = make_certificates(tmp_path / "foreign")
    ((name, _, text),) = problems(good._replace(key=str(foreign.client_key)))
    assert (name, f"does not belong to the certificate {good.cert}" in text) == ("key", True)
    exchanged = problems(good._replace(cert=good.key, key=good.cert))
    assert [(name, "in PEM form" in text) for name, _, text in exchanged] == [("cert", True), ("key", True)]
    for path, words in (("/", "Is a directory"), ("nul\0byte", "cannot be read"), ("/dev/null/x", "Not a directory")):
        ((_, readable, text),) = problems(good._replace(ca=path))
        assert (readable, words in text) == (False, True)


@pytest.mark.parametrize("form", [["pkcs8", "-topk8"], ["ec", "-aes128"]])
def test_pass_phrase(good: TlsFiles, tmp_path: Path, form: list[str]) -> None:
    """OpenSSL would ask for it on the terminal."""
    key = tmp_path / "protected.key"
    command = ["openssl", *form, "-in", good.key, "-passout", "pass:secret", "-out", str(key)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    ((_, _, text),) = problems(good._replace(key=str(key)))
    assert ("protected by a pass phrase" in text, "secret" in text) == (True, False)
