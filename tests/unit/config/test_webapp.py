# SPDX-License-Identifier: Apache-2.0
"""``webapp``: where pages are served, and who may change something (reference/configuration 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.exceptions import ConfigError

HEAD = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"
ZUUL = "{name: zuul, driver: HS256, client_id: nodepool, issuer_id: zuul_operator, secret: s}"


def load(directory: Path, text: str, *, strict: bool = True) -> Config:
    file = directory / "f.yaml"
    file.write_text(HEAD + text, encoding="utf-8")
    return load_config(str(file), strict=strict)


@pytest.mark.parametrize("text", ["", "webapp: {port: 8005}", "webapp: {auth: {}}"])
def test_defaults(tmp_path: Path, text: str) -> None:
    """Nobody may change anything; everybody may look; the builder has no pages."""
    config = load(tmp_path, text)
    assert (config.webapp_listen_address, config.webapp_port, config.webapp_builder_port) == ("0.0.0.0", 8005, 0)
    assert (config.webapp_authenticators, config.webapp_operators) == ([], [])
    assert not config.webapp_require_login
    assert (config.webapp_tls_cert, config.webapp_zuul_url, config.webapp_origins) == (None, None, [])


def test_empty_in_a_daemon(tmp_path: Path) -> None:
    """As every section of released files: it counts as not given."""
    assert load(tmp_path, "webapp:", strict=False).webapp_port == 8005


def test_login(tmp_path: Path) -> None:
    operators = "[{claim: groups, contains: ops}]"
    auth = f"{{require-login: true, authenticators: [{ZUUL}], operators: {operators}}}"
    config = load(tmp_path, f"webapp: {{auth: {auth}}}")
    (one,) = config.webapp_authenticators
    assert (one.name, one.driver, one.client_id, one.issuer_id, one.secret) == (
        *("zuul", "HS256", "nodepool", "zuul_operator", "s"),
    )
    assert (one.uid_claim, one.max_validity_time, one.skew, one.audience) == ("sub", None, 0.0, None)
    (rule,) = config.webapp_operators
    assert (rule.claim, rule.contains) == ("groups", "ops")
    assert config.webapp_require_login


def test_authenticators_compare_by_value(tmp_path: Path) -> None:
    """A reload with the same section changes nothing."""
    text = f"webapp: {{auth: {{authenticators: [{ZUUL}]}}}}"
    assert load(tmp_path, text).webapp_authenticators == load(tmp_path, text).webapp_authenticators


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{name: a, driver: HS256, client_id: c, issuer_id: i}", "secret is needed with driver HS256"),
        ("{name: a, driver: RS256, client_id: c, issuer_id: i}", "public_key is needed with driver RS256"),
        ("{name: a, driver: GitHub, client_id: c, issuer_id: i}", "HS256, RS256, OpenIDConnect"),
        ("{name: a, driver: OpenIDConnect, client_id: c}", "issuer_id"),
        (
            '{name: a, driver: HS256, client_id: c, issuer_id: i, secret: "%(NODEPOOL_NOT_SET_HERE)"}',
            "environment variable is not set",
        ),
    ],
)
def test_refused(tmp_path: Path, section: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, f"webapp: {{auth: {{authenticators: [{section}]}}}}", strict=False)
    assert "webapp.auth.authenticators[0]" in str(caught.value)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{auth: {require-login: true}}", "require-login: it needs webapp.auth.authenticators"),
        ("{auth: {require-login: true, authenticator: []}}", "require-login: it needs webapp.auth.authenticators"),
        ("{tls: {key: k.pem}}", "webapp.tls.key: it needs webapp.tls.cert"),
    ],
)
def test_more_open_than_meant(tmp_path: Path, section: str, words: str) -> None:
    """A slip does not open the pages: also a daemon refuses it."""
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, f"webapp: {section}", strict=False)


def test_who_may_connect(tmp_path: Path) -> None:
    """WP-66, WP-67."""
    config = load(tmp_path, "webapp: {trusted-proxies: [192.0.2.1, '2001:db8::/32'], allowed-hosts: [a.example.org]}")
    assert config.webapp_trusted_proxies == ["192.0.2.1", "2001:db8::/32"]
    assert config.webapp_allowed_hosts == ["a.example.org"]
    with pytest.raises(ConfigError, match=r"webapp\.trusted-proxies\[1\].*got 'proxy'"):
        load(tmp_path, "webapp: {trusted-proxies: [192.0.2.1, proxy]}")
