# SPDX-License-Identifier: Apache-2.0
"""What a new configuration changes, for a reader (rule J-1)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.plan.config_diff import MAX_DETAILS, Change, config_changes

BASE: dict[str, Any] = {
    "zookeeper-servers": [{"host": "zk1", "port": 2281}],
    "zookeeper-tls": {"cert": "/c.pem", "key": "/k.pem", "ca": "/ca.pem"},
    "labels": [{"name": "small", "min-ready": 1}, {"name": "big"}],
    "diskimages": [{"name": "debian", "elements": ["vm", "debian"], "env-vars": {"PASS": "hunter2"}}],
    "providers": [
        {
            "name": "lab",
            "driver": "static",
            "pools": [
                {
                    "name": "main",
                    "nodes": [
                        {"name": "host1", "labels": ["small"]},
                        {"name": "host1", "labels": ["big"], "username": "x"},
                    ],
                }
            ],
        }
    ],
    "tenant-resource-limits": [{"tenant-name": "t1", "max-cores": 10}],
}

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def texts(tmp_path: Path) -> Callable[[Edit], list[str]]:
    """The lines for an edit of the file."""

    def load(data: dict[str, Any]) -> Config:
        path = tmp_path / "nodepool.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        return load_config(str(path))

    def texts(edit: Edit) -> list[str]:
        data = copy.deepcopy(BASE)
        edit(data)
        return [change.text for change in config_changes(load(BASE), load(data))]

    return texts


def _host(data: dict[str, Any], number: int = 0) -> dict[str, Any]:
    host: dict[str, Any] = data["providers"][0]["pools"][0]["nodes"][number]
    return host


def _add(data: dict[str, Any]) -> None:
    other = copy.deepcopy(data["providers"][0])
    data["providers"].append({**other, "name": "lab2"})


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda data: None, []),
        (_add, ["provider lab2 added (driver static, pool main with big, small)"]),
        (lambda data: data["providers"].clear(), ["provider lab removed"]),
        (
            lambda data: _host(data).update({"max-parallel-jobs": 3}),
            ["provider lab changed: pools[main].nodes[host1].max-parallel-jobs: not given -> 3"],
        ),
        (
            lambda data: _host(data, 1)["labels"].append("small"),
            ["provider lab changed: pools[main].nodes[host1 #2].labels: small added"],
        ),
        (
            lambda data: data["providers"][0].update({"max-concurrency": 4}),
            ["provider lab changed: max-concurrency: not given -> 4"],
        ),
        (
            lambda data: data["providers"][0]["pools"][0]["nodes"].pop(),
            ["provider lab changed: pools[main].nodes[host1 #2] removed"],
        ),
        (
            lambda data: data["providers"][0]["pools"][0]["nodes"].append({"name": "host2", "labels": "big"}),
            ["provider lab changed: pools[main].nodes[host2] added"],
        ),
        (lambda data: data["labels"].append({"name": "new", "min-ready": 2}), ["label new added (min-ready 2)"]),
        (lambda data: data["labels"][0].update({"min-ready": 5}), ["label small changed: min-ready: 1 -> 5"]),
        (
            lambda data: data["diskimages"][0]["elements"].insert(1, "extra"),
            ["diskimage debian changed: elements: extra added"],
        ),
        (
            lambda data: data["diskimages"][0]["elements"].reverse(),
            ["diskimage debian changed: elements: another order"],
        ),
        (lambda data: data.pop("diskimages"), ["diskimage debian removed"]),
        (
            lambda data: data["tenant-resource-limits"][0].update({"max-cores": 20, "max-servers": 5}),
            ["tenant t1 changed: cores: 10 -> 20; instances: not given -> 5"],
        ),
        (
            lambda data: data["tenant-resource-limits"].append({"tenant-name": "t2", "max-ram": 4096}),
            ["tenant t2 added (ram 4096)"],
        ),
        (lambda data: data.update({"max-hold-age": 60}), ["max-hold-age: 0 -> 60"]),
        (
            lambda data: data["zookeeper-servers"].append({"host": "zk2", "port": 1, "chroot": "/z"}),
            ["zookeeper-servers: zk1:2281 -> zk1:2281, zk2:1/z"],
        ),
    ],
)
def test_line(texts: Callable[[Edit], list[str]], edit: Edit, expected: list[str]) -> None:
    """J-1: what was added, removed and changed, with key and values."""
    assert texts(edit) == expected


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data["diskimages"][0]["env-vars"].update({"PASS": "swordfish", "PIN": "swordfish"}),
        lambda data: data["diskimages"][0].update({"metadata": {"x": "swordfish"}}),
        lambda data: data["providers"].append({"name": "c", "driver": "aws", "secret-key": "swordfish"}),
        lambda data: _host(data).update({"host-key": "ssh-rsa swordfish"}),
    ],
)
def test_no_secret(texts: Callable[[Edit], list[str]], edit: Edit) -> None:
    """J-1: values of keys that may hold a secret are not shown."""
    lines = texts(edit)
    assert lines
    assert not any("hunter2" in line or "swordfish" in line for line in lines)


def test_logins(texts: Callable[[Edit], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may log in, and who may change something; never a secret."""
    login = {"name": "sso", "driver": "HS256", "client_id": "c", "issuer_id": "i", "secret": "hunter2"}

    def with_logins(data: dict[str, Any], secret: str = "hunter2") -> None:
        auth = {"authenticators": [{**login, "secret": secret}], "operators": [{"claim": "groups", "contains": "ops"}]}
        data["webapp"] = {"auth": auth}

    added = ["webapp.auth.authenticators[sso] added", "webapp.auth.operators[groups ops] added"]
    assert texts(with_logins) == added
    with monkeypatch.context() as patch:
        patch.setitem(BASE, "webapp", {"auth": {"authenticators": [login], "operators": []}})
        assert texts(lambda data: with_logins(data, "hunter3")) == [
            "webapp.auth.authenticators[sso].secret changed",
            "webapp.auth.operators[groups ops] added",
        ]
        assert texts(lambda data: data.pop("webapp")) == ["webapp.auth.authenticators[sso] removed"]


def test_of_a_mapping_only_the_keys(texts: Callable[[Edit], list[str]]) -> None:
    """J-1."""
    assert texts(lambda data: data["diskimages"][0]["env-vars"].update({"PASS": "x", "PIN": "1"})) == [
        "diskimage debian changed: env-vars.PASS changed; env-vars.PIN added"
    ]


class Provider:
    """A provider of which only some things are compared."""

    pools: dict[str, Any]

    def __init__(self, section: dict[str, Any], files: str = "") -> None:
        self.provider = section
        self.files = files

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provider) and (self.provider, self.files) == (other.provider, other.files)

    def __hash__(self) -> int:
        raise AssertionError


def of_provider(old: dict[str, Any], new: dict[str, Any], files: str = "") -> list[Change]:
    before, after = Config(), Config()
    before.providers["cloud"] = Provider(old)  # type: ignore[assignment]
    after.providers["cloud"] = Provider(new, files)  # type: ignore[assignment]
    return config_changes(before, after)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"password": "a"}, {"password": "b"}, "password changed"),
        ({"api-key": 1}, {"api-key": 2}, "api-key changed"),
        ({"userdata": "a"}, {"userdata": "b"}, "userdata changed"),
        ({"region": "https://me:pw@x"}, {"region": "y"}, "region changed"),
        ({"cloud": "x" * 100}, {"cloud": "y"}, f"cloud: {'x' * 60}... -> y"),
        ({"rate": 1.5}, {"rate": 2}, "rate: 1.5 -> 2"),
        ({"flag": True}, {"flag": False}, "flag: true -> false"),
        ({"pools": [{"name": "a"}, {"name": "b"}]}, {"pools": [{"name": "b"}, {"name": "a"}]}, "pools: another order"),
        ({"labels": ["a"]}, {"labels": [{"name": "a", "cpu": 1}]}, "labels changed"),
        (
            {"labels": ["a", {"name": "b"}]},
            {"labels": [{"name": "b", "cpu": 1}]},
            "labels[b].cpu: not given -> 1; labels[a] removed",
        ),
        ({"odd": [1]}, {"odd": [2]}, "odd changed"),
        ({"tags": {"a": 1}}, {"tags": {"b": 1}}, "tags.a removed; tags.b added"),
    ],
)
def test_sections_of_any_driver(old: dict[str, Any], new: dict[str, Any], expected: str) -> None:
    """J-1."""
    assert [change.text for change in of_provider(old, new)] == [f"provider cloud changed: {expected}"]


def test_same_section_but_other_files() -> None:
    """J-1: e.g. clouds.yaml, of which nothing is shown."""
    (change,) = of_provider({"name": "cloud"}, {"name": "cloud"}, files="other")
    assert change.text == "provider cloud changed: something that it reads beside its section"


def test_lines_are_bounded() -> None:
    """J-1: the object has all differences, its line the first ones."""
    (change,) = of_provider({}, {f"key{number}": number for number in range(50)})
    assert len(change.details) == 50
    assert change.text.endswith(f"; and {50 - MAX_DETAILS} more")
