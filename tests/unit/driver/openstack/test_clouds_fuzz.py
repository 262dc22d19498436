# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in clouds.yaml: a cloud can be used, or it is said why not; nothing else, and no secret."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

# The loader looks into what was the working directory when it was imported: that of pytest, for all tests.
import openstack.config.loader  # noqa: F401
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodepool.driver.openstack.clouds import CloudProblem, Clouds, problem_of, risks_of
from nodepool.driver.openstack.instance import CloudNetworks
from tests.support.odd_json import damaged

SECRET = "pass-W0RD"
GOOD: dict[str, Any] = {
    "cache": {"expiration_time": 3600},
    "clouds": {
        "one": {
            "auth": {"auth_url": "https://k.example.org/v3", "username": "u", "password": SECRET, "project_name": "p"},
            "regions": ["north", {"name": "south", "values": {"api_timeout": 3}}],
            "networks": [{"name": "n", "routes_externally": True, "nat_source": True}],
            "api_timeout": 5,
            "verify": True,
            "cacert": None,
            "interface": "public",
            "image_format": "raw",
            "identity_api_version": 3,
        }
    },
}
PLACES: list[tuple[Any, ...]] = [
    ("clouds",),
    ("cache",),
    ("clouds", "one"),
    *(("clouds", "one", key) for key in GOOD["clouds"]["one"]),
    *(("clouds", "one", "auth", key) for key in GOOD["clouds"]["one"]["auth"]),
    *(("clouds", "one", key) for key in ("profile", "region_name", "insecure", "cert", "key", "auth_type", "private")),
    ("clouds", "one", "regions", 0),
    ("clouds", "one", "regions", 1, "values"),
    ("clouds", "one", "networks", 0),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates()
TEXTS = st.sampled_from(
    ["http://[", "http://u:p@h", "token", "none", "v3applicationcredential", "rackspace", "/", "nan", "0"]
)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab_", max_size=2), inner, max_size=2),
    max_leaves=5,
)
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

fuzz = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clouds.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    return path


def check_text(problem: str) -> None:
    assert SECRET not in problem
    assert "\n" not in problem


def check(file: Path, data: str | bytes) -> None:
    file.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    clouds = Clouds()
    clouds.files()
    for region in (None, "south"):
        found = clouds.settings("one", region)
        assert SECRET not in found.problem + found.outdated + repr(found)
        assert found == clouds.settings("one", region) or found.values
        CloudNetworks.of(found.values)
        assert isinstance(found.image_format, str)
        try:
            usable = clouds.region("one", region)
        except CloudProblem as problem:
            check_text(str(problem))
            continue
        assert problem_of(usable) == ""
        assert SECRET not in "".join(risks_of(usable))


@fuzz
@example(b"clouds: {one: {auth: {password: !pass-W0RD x}}}")
@example(b"clouds: {one: {auth: {password: *pass-W0RD}}}")
@example(b"clouds: {one: {auth: &x [*x]}}")
@example(b"clouds: {one: &x {auth: {a: *x}}}")
@example(b"[" * 500)
@example(b"clouds: {one: {auth: {}, a: " + b"[" * 300 + b"]" * 300 + b"}}")
@example(BOMB.encode() + b"clouds: {one: {auth: {auth_url: 'https://x', username: u, password: p}, x: *i}}")
@example(b"\xff")
@example(b"clouds: {one: {auth: {auth_url: 'http://[', username: u, password: p, project_name: p}}}")
@given(st.binary(max_size=30))
def test_any_bytes(file: Path, data: bytes) -> None:
    check(file, data)


@fuzz
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_damaged_file(file: Path, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    check(file, yaml.safe_dump(damaged(GOOD, changes)))


@pytest.mark.parametrize(
    ("settings", "risks"),
    [
        ({}, []),
        ({"verify": False}, ["certificates are not verified"]),
        ({"insecure": True}, ["certificates are not verified"]),
        ({"auth_url": "http://k.example.org/v3"}, ["the password is sent without TLS"]),
        ({"auth_url": "http://127.0.0.1:5000/v3"}, []),
        ({"auth_url": "http://localhost/v3"}, []),
        ({"auth_url": "https://proxy:secret@k.example.org/v3"}, ["auth_url has a password in it"]),
    ],
    ids=str,
)
def test_risks(file: Path, settings: dict[str, Any], risks: list[str]) -> None:
    """What an operator may do, but should know."""
    data = copy.deepcopy(GOOD)
    for key, value in settings.items():
        (data["clouds"]["one"]["auth"] if key == "auth_url" else data["clouds"]["one"])[key] = value
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    found = risks_of(Clouds().region("one", None))
    assert [text.partition(",")[0] for text in found] == risks
    assert "secret" not in "".join(found)
