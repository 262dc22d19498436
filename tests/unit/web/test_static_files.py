# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import hashlib
import tomllib
from pathlib import Path

import pytest

import nodepool.web
from nodepool.web.answers import StaticFiles
from tests.support.web_site import WebSite

STATIC = Path(nodepool.web.__file__).parent / "static"
VENDOR = STATIC / "vendor"


def test_kept_for_ever_at_the_address_with_the_hash() -> None:
    """WP-40"""
    client = WebSite().client
    address = StaticFiles().address("nodepool.css")
    with_hash, without = client.get(f"/{address}"), client.get("/static/nodepool.css")
    assert with_hash.content == without.content == (STATIC / "nodepool.css").read_bytes()
    assert with_hash.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert without.headers["cache-control"] == "no-cache"
    assert with_hash.headers["content-type"] == "text/css; charset=utf-8"


def test_unchanged_file_is_not_sent_again() -> None:
    client = WebSite().client
    tag = client.get("/static/live.js").headers["etag"]
    answer = client.get("/static/live.js", headers={"If-None-Match": tag})
    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.css", "vendor/vendor.toml", "../app.py", "%2e%2e/app.py", "", "/etc/passwd"])
def test_nothing_else_is_served(name: str) -> None:
    assert WebSite().client.get(f"/static/{name}").status_code == 404


def test_unknown_name() -> None:
    with pytest.raises(KeyError):
        StaticFiles().address("nothing.css")


def test_vendored_files_are_those_of_their_releases() -> None:
    """WP-40: the hashes are those that tools/vendor has compared with the registry's archive."""
    packages = tomllib.loads((VENDOR / "vendor.toml").read_text())["package"]
    assert {(package["name"], package["licence"]) for package in packages} == {("htmx.org", "0BSD"), ("uplot", "MIT")}
    files = {file["to"]: file["integrity"] for package in packages for file in package["files"]}
    for name, integrity in files.items():
        digest = hashlib.sha512((VENDOR / name).read_bytes()).digest()
        assert integrity == "sha512-" + base64.b64encode(digest).decode(), name
    assert {path.name for path in VENDOR.iterdir()} == {*files, "vendor.toml"}


def test_own_scripts_are_short() -> None:
    """WP-40"""
    for path in STATIC.glob("*.js"):
        assert len(path.read_text().splitlines()) <= 40, path.name
