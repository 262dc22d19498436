# SPDX-License-Identifier: Apache-2.0
"""``nodepool health``: whom it asks, and what it makes of the answer."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nodepool.cmd import cli
from nodepool.cmd.app import CommandError
from nodepool.cmd.health import target_of_url, target_of_webapp


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
        status = 200 if self.path in self.texts else 503
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is told."""


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that gives `Answers`."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("webapp", "address"),
    [
        ({}, "http://127.0.0.1:8005/p"),
        ({"port": 80, "listen_address": "::"}, "http://[::1]:80/p"),
        ({"listen_address": "192.0.2.1", "tls": {"cert": "c", "key": "k"}}, "https://192.0.2.1:8005/p"),
    ],
)
def test_address_of_the_configuration(webapp: dict[str, Any], address: str) -> None:
    target = target_of_webapp("launcher", webapp, "/p")
    assert str(target) == address
    # The certificate is for the name that browsers use.
    assert target is not None
    assert not target.verify


@pytest.mark.parametrize("webapp", [{"port": 0}, {"port": "8005"}, {"port": True}, {"port": 70000}, {"port": None}])
def test_ports_that_tell_nothing(webapp: dict[str, Any]) -> None:
    assert target_of_webapp("launcher", webapp, "/p") is None
    assert target_of_webapp("builder", {}, "/p") is None


def test_address_of_the_command_line() -> None:
    assert str(target_of_url("https://[2001:db8::1]", "/p")) == "https://[2001:db8::1]:443/p"
    assert str(target_of_url("http://a:1/x/?y=z", "/p")) == "http://a:1/x?y=z"
    assert target_of_url("https://a", "/p").verify


@pytest.mark.parametrize("url", ["a:8005", "ftp://a", "http://", "http://a:b", "http://a:99999", "http://[::1"])
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(CommandError, match="--url"):
        target_of_url(url, "/p")


def test_answers(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard output, whatever the answer is."""
    config = tmp_path / "nodepool.yaml"
    config.write_text(f"webapp: {{port: {port}}}\n", encoding="utf-8")
    assert cli.main(["-c", str(config), "health", "--web"]) == 1
    assert capsys.readouterr().out == f"web: http://127.0.0.1:{port}/health/ready: 503 not ok\n"
    assert cli.main(["-c", str(config), "health", "--live"]) == 0
    assert capsys.readouterr().out == f"launcher: http://127.0.0.1:{port}/health/live: OK\n"
    assert cli.main(["health", "--builder", "--url", f"http://127.0.0.1:{port}/health/live"]) == 0
    assert capsys.readouterr().out.startswith("builder: ")


def test_configuration_that_is_not_in_effect(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """G-8: the daemon works, with the old one; the line says so."""
    url = f"http://127.0.0.1:{port}"
    assert cli.main(["health", "--url", f"{url}/served/health/ready"]) == 0
    why = "; the changed configuration is not in effect: provider a: no such cloud; " + "b" * 300
    assert capsys.readouterr().out == f"launcher: {url}/served/health/ready: OK{why}\n"
    assert cli.main(["health", "--url", f"{url}/old/health/ready"]) == 0
    assert capsys.readouterr().out == f"launcher: {url}/old/health/ready: OK\n"


def test_no_server(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "nodepool.yaml"
    config.write_text("webapp: {port: 0}\n", encoding="utf-8")
    assert cli.main(["-c", str(config), "health", "--web"]) == 1
    assert "webapp.port" in capsys.readouterr().err
    # What answers is no server of TLS.
    assert cli.main(["health", "--timeout", "5", "--url", f"https://127.0.0.1:{port}/health/live"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"launcher: https://127.0.0.1:{port}/health/live: ")
    assert out.count("\n") == 1
