# SPDX-License-Identifier: Apache-2.0
"""Commands that need no ZooKeeper, and parts of others that have tables of their own (reference/commands 2)."""

from __future__ import annotations

import http.server
import io
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from cryptography import x509

from nodepool.clock import wall_time
from nodepool.cmd import cli, tls
from nodepool.cmd.app import CommandError
from nodepool.cmd.health import target_of_url, target_of_webapp
from nodepool.cmd.images import write_file
from nodepool.cmd.session import Item, give_up_without_connection, progress, say_what_is_waited_for
from nodepool.exceptions import ZKConnectionError
from tests.support.tables import rows
from tests.support.terminal import TerminalStream

DAY: Final = 86400
Output = pytest.CaptureFixture[str]


class Place:
    """A directory of ``nodepool-tls``, and what the command says."""

    def __init__(self, path: Path, capsys: Output) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Run it; returns what it prints, or complains."""
        assert tls.main(["-d", str(self.path), *arguments]) == status
        out, err = self._capsys.readouterr()
        return err if status else out

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}

    def mode(self, name: str) -> int:
        return stat.S_IMODE((self.path / name).stat().st_mode)

    def certificate(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.path / name).read_bytes())

    def trusted_by_openssl(self) -> None:
        for name in ("servers/zk1.example.com.pem", "clients/nodepool.pem"):
            files = ["-CAfile", str(self.path / "ca.pem"), str(self.path / name)]
            command = ["openssl", "verify", "-x509_strict", *files]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr


@pytest.fixture
def made(tmp_path: Path, capsys: Output) -> Place:
    """With an authority, a server and a client."""
    place = Place(tmp_path / "zk-tls", capsys)
    for line in ("server zk1", "client c", "list", "renew"):
        assert "nodepool-tls init makes one" in place(*line.split(), status=1)
    assert "who has it can make certificates" in place("init")
    told = place("server", "zk1.example.com", "localhost", "127.0.0.1", "::1")
    assert f"{place.path}/servers/zk1.example.com.pem  ->  /etc/zookeeper/tls/server.pem" in told
    assert "ssl.clientAuth=need" in told
    told = place("client", "nodepool")
    assert f"{place.path}/clients/nodepool.pem  ->  /etc/nodepool/zk-client.pem" in told
    assert "/etc/nodepool/zk-client.key  (owner root, group nodepool, mode 0640)" in told
    assert "    key: /etc/nodepool/zk-client.key" in told
    return place


def test_tls_files(made: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are for their owner only, at any moment and with any umask. Zuul has its files in a place of its own."""
    modes: list[int] = []
    opened = os.open

    def note(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor = opened(path, flags, mode, **more)
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    before = os.umask(0)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", note)
            told = made("client", "zuul-executor")
            made("renew", "--all")
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    assert f"{made.path}/clients/zuul-executor.key  ->  /etc/zuul/zk-client.key" in told
    assert "  tls_ca=/etc/zuul/zk-ca.pem" in told
    assert "/etc/nodepool" not in told
    assert {made.mode(name) for name in ("", "servers", "clients")} == {0o700}
    assert {made.mode(name) for name in ("ca.key", "servers/zk1.example.com.pem", "clients/nodepool.key")} == {0o600}
    assert {made.mode(name) for name in ("ca.pem", "clients/nodepool.pem")} == {0o644}
    assert not list(made.path.rglob("*.new"))


def test_tls_mistakes(made: Place) -> None:
    """One clear line, exit status 1, and nothing is changed."""
    before = made.files()
    for arguments, words in (
        *((("init",), "has an authority already"), (("server", "zk1.example.com"), "has a certificate already")),
        *((("client", "../x"), "cannot be a name"), (("client", ""), "cannot be a name")),
        (("server", "zk2", "a b"), "neither the name nor the address"),
        (("renew", "nobody"), "no server or client is called nobody"),
    ):
        assert words in made(*arguments, status=1)
    for days in ("0", "-1", "99999999", "soon"):
        with pytest.raises(SystemExit) as ended:
            made("client", "c", "--days", days)
        assert ended.value.code == 2
    assert made.files() == before
    (made.path / "ca.key").write_text("nonsense")
    assert "ca.key cannot be read" in made("client", "c", status=1)
    (made.path / "clients" / "nodepool.pem").write_text("nonsense")
    assert "nodepool.pem has no certificate" in made("list", status=1)


def test_tls_renewal(made: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key, the names, the owner and the mode stay; what is good for 60 days needs none."""
    client, server = made.path / "clients/nodepool.pem", made.path / "servers/zk1.example.com.pem"
    client.chmod(0o640)
    server.chmod(0o400)
    before, old = made.files(), made.certificate("clients/nodepool.pem")
    assert "Nothing to do" in made("renew")
    made("renew", "nodepool", "zk1.example.com", "--days", "30")
    after, new = made.files(), made.certificate("clients/nodepool.pem")
    assert new.serial_number != old.serial_number
    assert new.public_key() == old.public_key()
    key = made.path / "clients/nodepool.key"
    assert (after[key], made.mode("clients/nodepool.pem")) == (before[key], 0o640)
    assert made.mode("servers/zk1.example.com.pem") == 0o400
    assert len({files[server].partition(b"-----BEGIN CERT")[0] for files in (before, after)}) == 1
    assert "Wrote" in made("renew"), "30 days are within 60"
    told = made("list")
    assert "zk1.example.com, localhost, 127.0.0.1, ::1" in told
    assert "824 days" in told
    later = wall_time() + 900 * DAY
    monkeypatch.setattr(tls, "wall_time", lambda: later)
    assert made("list").count("expired") == 2


def test_tls_change_of_the_authority(made: Place, tmp_path: Path, capsys: Output) -> None:
    """As the page says: while ``ca.pem`` has both, ``renew`` makes what the new authority has not signed yet."""
    second = Place(tmp_path / "second", capsys)
    second("init", "--name", "second")
    old, new = made.path / "ca.pem", second.path / "ca.pem"
    old.write_bytes(new.read_bytes() + old.read_bytes())
    (second.path / "ca.key").rename(made.path / "ca.key")
    made.trusted_by_openssl()
    assert made("list").count("old") >= 3
    made("renew")
    new.rename(old)
    made.trusted_by_openssl()
    assert "Nothing to do" in made("renew")


class Answers(http.server.BaseHTTPRequestHandler):
    """A daemon that is alive and not ready; below ``/served`` one that is ready."""

    texts: ClassVar[dict[str, bytes]] = {
        "/health/live": b"OK",
        "/served/health/ready": b"OK",
        "/served/health/status": b'{"reload_errors": ["provider a: no such\\ncloud", "' + b"b" * 300 + b'"]}',
        "/old/health/ready": b"OK",
        "/old/health/status": b"{}",
    }

    def do_GET(self) -> None:
        text = self.texts.get(self.path, b"not ok\nmore")
        self.send_response(200 if self.path in self.texts else 503)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that gives `Answers`."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_health(port: int, tmp_path: Path, capsys: Output) -> None:
    """G-8: one line on standard output, whatever the answer is; also that the file is not in effect."""
    config, url = tmp_path / "nodepool.yaml", f"http://127.0.0.1:{port}"
    config.write_text(f"webapp: {{port: {port}}}\n", encoding="utf-8")
    why = "; the changed configuration is not in effect: provider a: no such cloud; " + "b" * 300
    for line, status, out in (
        ("--web", 1, f"web: {url}/health/ready: 503 not ok\n"),
        ("--live", 0, f"launcher: {url}/health/live: OK\n"),
        (f"--builder --url {url}/health/live", 0, f"builder: {url}/health/live: OK\n"),
        (f"--url {url}/served/health/ready", 0, f"launcher: {url}/served/health/ready: OK{why}\n"),
        (f"--url {url}/old/health/ready", 0, f"launcher: {url}/old/health/ready: OK\n"),
    ):
        assert cli.main(["-c", str(config), "health", *line.split()]) == status
        assert capsys.readouterr().out == out
    # What answers is no server of TLS.
    assert cli.main(["health", "--timeout", "5", "--url", f"https://127.0.0.1:{port}/health/live"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"launcher: https://127.0.0.1:{port}/health/live: ")
    assert out.count("\n") == 1
    config.write_text("webapp: {port: 0}\n", encoding="utf-8")
    assert cli.main(["-c", str(config), "health", "--web"]) == 1
    assert "webapp.port" in capsys.readouterr().err


@rows(__file__, "test_health_addresses")
def test_health_addresses(webapp: Any, address: str | None) -> None:
    """Of a configuration and of ``--url``."""
    if address is None:
        with pytest.raises(CommandError, match="--url"):
            target_of_url(webapp, "/p")
        return
    target = target_of_url(webapp, "/p") if isinstance(webapp, str) else target_of_webapp("launcher", webapp, "/p")
    assert str(target) == address
    assert target_of_webapp("builder", {}, "/p") is None


def test_health_checks_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``--url``; that of this machine is for the name that browsers use."""
    checked: list[bool] = []

    def ask(*_: Any, verify: bool) -> tuple[int, str]:
        checked.append(verify)
        return 200, "{}"

    monkeypatch.setattr("nodepool.cmd.health.ask", ask)
    config = tmp_path / "nodepool.yaml"
    config.write_text("webapp: {tls: {cert: c, key: k}}")
    assert [cli.main(["health", "--url", "https://a/x"]), cli.main(["-c", str(config), "health", "--live"])] == [0, 0]
    assert checked == [True, False]


OLD: Final = """
zookeeper-servers: [{host: zk1}]
zookeeper-tls: {cert: /c, key: /k, ca: /a}
labels: [{name: small}]
providers: [{name: lab, driver: static, pools: [{name: main, nodes: [{name: h, labels: [small]}]}]}]
"""
REFUSED: Final = "providers[0].pools[0].nodes[0].labels[0]: the label 'smal' is not defined"


@rows(__file__, "test_config_diff")
def test_config_diff(change: tuple[str, str], status: int, out: str, err: str, tmp_path: Path, capsys: Output) -> None:
    """Against the file in effect, or another one; a section that is refused is named once, with its place."""
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(OLD, encoding="utf-8")
    new.write_text(OLD.replace(*change), encoding="utf-8")
    for arguments in (["-c", str(old), "config-diff", str(new)], ["config-diff", str(old), str(new)]):
        assert cli.main(arguments) == status
        told = capsys.readouterr()
        assert out in told.out
        assert err in told.err
        assert bool(told.out) == bool(out)
        assert bool(told.err) == bool(err)
    if REFUSED in out:
        assert cli.main(["-c", str(old), "config-diff", "--format", "json", str(new)]) == 1
        (found,) = json.loads(capsys.readouterr().out)
        assert (found["kind"], found["name"]) == ("provider", "lab")
        assert "the running one goes on with its old section" in found["effect"]


def test_file_of_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/commands 2: mode 0600, also of a file that was there, which is replaced as a whole or not at all; a
    link stays one; a pipe may take it.
    """
    path, link, pipe = tmp_path / "export", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    for before in (None, "x" * 100):
        if before is not None:
            path.write_text(before)
            path.chmod(0o644)
        write_file(str(link), "{}")
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode), link.is_symlink()) == ("{}", 0o600, True)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda _: os.stat("/nowhere"))
        with pytest.raises(FileNotFoundError):
            write_file(str(path), "new")
    assert path.read_text() == "{}"
    assert {file.name for file in tmp_path.iterdir()} == {"export", "link"}
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_file, args=(str(pipe), "{}"))
    writer.start()
    assert pipe.read_text() == "{}"
    writer.join()


@pytest.mark.parametrize("ignored", [False, True], ids=["shell", "in the background"])
def test_lost_connection_ends_the_work(ignored: bool) -> None:
    """Also while the main thread waits for an answer that will not come. A shell that starts a command with ``&`` has
    SIGINT ignored.
    """
    listeners: list[Callable[[str], None]] = []
    reasons = ["ZooKeeper zk1:2281 (zookeeper-servers[0]): connection refused"]

    def wait_for_an_answer() -> None:
        listeners[0]("suspended")
        threading.Event().wait(60)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        bounded = give_up_without_connection(listeners.append, "zk1:2281", seconds=0.01, why=lambda: reasons)
        with pytest.raises(ZKConnectionError, match=r"ZooKeeper at zk1:2281 was lost\n.*connection refused"), bounded:
            wait_for_an_answer()
    finally:
        signal.signal(signal.SIGINT, before)


def test_connection_that_comes_back_is_fine() -> None:
    listeners: list[Callable[[str], None]] = []
    with give_up_without_connection(listeners.append, "zk1:2281", seconds=60):
        for state in ("suspended", "lost", "connected"):
            listeners[0](state)
    listeners[0]("suspended")
    with pytest.raises(KeyboardInterrupt), give_up_without_connection(lambda listener: None, "zk1:2281"):
        raise KeyboardInterrupt


def test_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows it after a while; a file does not."""
    for stream in (TerminalStream(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with say_what_is_waited_for("ZooKeeper", seconds=3600):
            assert threading.active_count() > 1
        with say_what_is_waited_for("ZooKeeper at zk1:2281", seconds=0.0):
            for timer in (one for one in threading.enumerate() if isinstance(one, threading.Timer)):
                timer.join(60)
        text = stream.raw_text if isinstance(stream, TerminalStream) else stream.getvalue()
        assert text == ("waiting for ZooKeeper at zk1:2281, up to 10 s ...\n" if stream.isatty() else "")


@rows(__file__, "test_progress")
def test_progress(terminal: bool, shown: list[list[Any]], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars replace each other. On a terminal they are removed in the end, and a line of the log stands above them."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    stream, root = TerminalStream() if terminal else io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(stream) if terminal else logging.NullHandler()])
    with progress(stream) as show:
        for items in shown:
            show([Item(*item) for item in items])
        root.error("a line of the log")
    root.error("later")
    if isinstance(stream, TerminalStream):
        pictures, last = text.splitlines(), text.splitlines()[-len(shown[-1]) :]
        assert [line for line in stream.lines if line] == [*pictures, "a line of the log", *last, *last, "later"]
        assert stream.raw_text.count("\x1b[2K") > 2 * len(last)
    else:
        assert stream.getvalue() == text
