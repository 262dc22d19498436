# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.config.loader import load_config
from nodepool.config.webapp import wrong_address, wrong_host, wrong_origin, wrong_provider_address
from nodepool.exceptions import ConfigError

HEAD = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"
ONE = "{name: zuul, driver: HS256, client_id: nodepool, issuer_id: zuul_operator, secret: s}"


@pytest.mark.parametrize("given", ["https://zuul.example.org", "http://[::1]:9000/", "https://ci.example.org/zuul"])
def test_address(given: str) -> None:
    assert wrong_address(given) is None


@pytest.mark.parametrize(
    "given",
    [
        *(
            "zuul.example.org",
            "ftp://zuul",
            "https://",
            "http://[::1",
            "http://a:b",
            "http://a:0",
            "javascript:alert(1)",
        ),
        *("http://a b", "http://a\n", "http://a?b", "http://a#b", "/zuul"),
    ],
)
def test_no_address(given: str) -> None:
    assert "no address" in (wrong_address(given) or "")
    assert "no origin" in (wrong_origin(given) or "")


@pytest.mark.parametrize("given", ["https://kc.example/x", "http://localhost:8080", "http://127.0.0.2", "http://[::1]"])
def test_provider(given: str) -> None:
    assert wrong_provider_address(given) is None


@pytest.mark.parametrize(
    "given", ["http://kc.example", "http://10.0.0.1", "http://localhost.example", "x", "file:///x"]
)
def test_provider_that_is_not_asked(given: str) -> None:
    """WP-103"""
    assert "must begin with https" in (wrong_provider_address(given) or "")


@pytest.mark.parametrize("given", ["nodepool.example.org", "*.example.org", "10.0.0.1", "::1", "[2001:db8::1]", "ci"])
def test_host(given: str) -> None:
    assert wrong_host(given) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((given, "no name of a host") for given in ("", "*", "*.", "a b", "a/b", "x.*.y", "n\u00f6de", "a\n")),
        *((given, "only the name") for given in ("nodepool.example.org:8005", "http:", "[::1]:80")),
        ("https://nodepool.example.org", "no name of a host"),
    ],
)
def test_host_that_no_browser_asks_for(given: str, words: str) -> None:
    assert words in (wrong_host(given) or "")


@pytest.mark.parametrize("given", ["https://nodepool.example.org", "http://10.0.0.1:8080", "https://A.example/"])
def test_origin(given: str) -> None:
    """As logins compare it (WP-87): case and a slash at the end do not count."""
    assert wrong_origin(given) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("https://a/nodepool", "without a path"),
        ("https://u@a", "no origin"),
        ("null", "no origin"),
        ("https://a:443", "leave port 443"),
        ("http://a:80", "leave port 80"),
    ],
)
def test_origin_that_no_browser_sends(given: str, words: str) -> None:
    assert words in (wrong_origin(given) or "")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{zuul-url: zuul.example.org}", r"f.yaml:3: webapp.zuul-url: 'zuul.example.org' is no address"),
        ('{origins: ["https://a", b]}', r"f.yaml:3: webapp.origins\[1\]: 'b' is no origin"),
        (
            f"{{auth: {{authenticators: [{ONE}, {ONE}]}}}}",
            r"authenticators\[1\].name: another authenticator has the name",
        ),
        (
            "{auth: {authenticators: [{name: kc, driver: OpenIDConnect, client_id: c, issuer_id: 'http://kc'}]}}",
            r"f.yaml:3: webapp.auth.authenticators\[0\].issuer_id: 'http://kc' is no address of a provider",
        ),
        (
            "{auth: {authenticators: [{name: kc, driver: OpenIDConnect, client_id: c, issuer_id: kc, keys_url: kc}]}}",
            r"authenticators\[0\].keys_url: 'kc' is no address of a provider",
        ),
    ],
)
def test_told_with_the_line(tmp_path: Path, section: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """``config-validate`` refuses it; a daemon warns, and serves."""
    file = tmp_path / "f.yaml"
    file.write_text(f"{HEAD}webapp: {section}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load_config(str(file), strict=True)
    load_config(str(file), strict=False)
    assert "webapp" in caplog.text
