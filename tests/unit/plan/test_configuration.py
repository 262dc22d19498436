# SPDX-License-Identifier: Apache-2.0
"""What a new configuration changes, and what maintenance records hold back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.model.maintenance import MODES, Maintenance, MaintenanceRecords, Mode
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.plan.config_diff import MAX_DETAILS, Change, compare, config_changes, reload_effects
from nodepool.plan.maintenance import (
    Subject,
    UnclearSubject,
    ended,
    find,
    next_end,
    of_host,
    of_labels,
    of_launcher,
    of_node,
    of_pool,
    of_subject,
    reason,
)

NOW = 1000.0
OPS = {"claim": "groups", "contains": "ops"}
BASE = """
zookeeper-servers: [{host: zk1, port: 2281}]
zookeeper-tls: {cert: /c.pem, key: /k.pem, ca: /ca.pem}
labels: [{name: small, min-ready: 1}, {name: big}]
diskimages: [{name: debian, elements: [vm, debian], env-vars: {PASS: hunter2}}]
providers:
  - name: lab
    driver: static
    pools: [{name: main, nodes: [{name: host1, labels: [small]}, {name: host1, labels: [big], username: x}]}]
tenant-resource-limits: [{tenant-name: t1, max-cores: 10}]
webapp: {auth: {authenticators: [{name: sso, driver: HS256, client_id: c, issuer_id: i, secret: hunter2}]}}
"""
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[Edit], tuple[Config, Config]]:
    """The configuration before and after an edit of the file."""

    def load(data: dict[str, Any]) -> Config:
        path = tmp_path / "nodepool.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        return load_config(str(path))

    def edited(edit: Edit) -> tuple[Config, Config]:
        data = yaml.safe_load(BASE)
        edit(data)
        return load(yaml.safe_load(BASE)), load(data)

    return edited


def put(path: str, value: Any) -> Edit:
    """Set what is there; `+` at the end of the path: append to a list; None: remove."""

    def edit(data: Any) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        for step in steps:
            data = data[step]
        if last == "+":
            data.append(value)
        elif value is None:
            del data[last]
        else:
            data[last] = value

    return edit


NODES = "providers/0/pools/0/nodes"
LAB2 = {**yaml.safe_load(BASE)["providers"][0], "name": "lab2"}
LOGIN = "webapp/auth/authenticators/0/secret"
STARTED, RESTARTED = "the provider is started, and its pools serve requests", "started anew"
AFTER = "takes effect after a restart"
SECTIONS = [
    (put(f"{NODES}/0/max-parallel-jobs", 3), "pools[main].nodes[host1].max-parallel-jobs: not given -> 3"),
    (put(f"{NODES}/1/labels/+", "small"), "pools[main].nodes[host1 #2].labels: small added"),
    (put("providers/0/max-concurrency", 4), "max-concurrency: not given -> 4"),
    (put(f"{NODES}/1", None), "pools[main].nodes[host1 #2] removed"),
    (put(f"{NODES}/+", {"name": "host2", "labels": "big"}), "pools[main].nodes[host2] added"),
    # No value of a key that may hold a secret is shown.
    (put(f"{NODES}/0/host-key", "ssh-rsa hunter4"), ""),
]
IMAGES = [
    (put("diskimages/0/elements", ["vm", "extra", "debian"]), "elements: extra added"),
    (put("diskimages/0/elements", ["debian", "vm"]), "elements: another order"),
    (put("diskimages/0/env-vars", {"PASS": "x", "PIN": "1"}), "env-vars.PASS changed; env-vars.PIN added"),
    (put("diskimages/0/metadata", {"x": "hunter4"}), "metadata.x"),
]
TENANT = {"tenant-name": "t1", "max-cores": 20, "max-servers": 5}


@pytest.mark.parametrize(
    ("edit", "expected", "effect"),
    [
        (lambda data: None, None, ""),
        (put("providers/+", LAB2), "provider lab2 added (driver static, pool main with big, small)", STARTED),
        (put("providers/+", {"name": "c", "driver": "aws", "secret-key": "hunter4"}), "provider c", STARTED),
        (put("providers", []), "provider lab removed", "the provider is stopped"),
        *((edit, f"provider lab changed: {text}", RESTARTED) for edit, text in SECTIONS),
        (put("labels/+", {"name": "new", "min-ready": 2}), "label new added (min-ready 2)", ""),
        (put("labels/0/min-ready", 5), "label small changed: min-ready: 1 -> 5", ""),
        *((edit, f"diskimage debian changed: {text}", "") for edit, text in IMAGES),
        (put("diskimages", None), "diskimage debian removed", ""),
        (put("tenant-resource-limits/0", TENANT), "tenant t1 changed: cores: 10 -> 20; instances: not given -> 5", ""),
        (put("tenant-resource-limits/+", {"tenant-name": "t2", "max-ram": 4096}), "tenant t2 added (ram 4096)", ""),
        (put("max-hold-age", 60), "max-hold-age: 0 -> 60", ""),
        # G-13
        (put("zookeeper-servers/0/host", "zk2"), "zookeeper-servers: zk1:2281 -> zk2:2281", "without a restart"),
        (put("zookeeper-servers/0/chroot", "/z"), "zookeeper-servers: zk1:2281 -> zk1:2281/z", AFTER),
        (put("zookeeper-tls/key", "/x.pem"), "zookeeper-tls.key: /k.pem -> /x.pem", AFTER),
        (put("zookeeper-timeout", 20), "zookeeper-timeout: ", AFTER),
        # Who may log in, and who may change something; never a secret.
        (put("webapp/auth/operators", [OPS]), "webapp.auth.operators[groups ops] added", AFTER),
        (put(LOGIN, "hunter3"), "webapp.auth.authenticators[sso].secret changed", AFTER),
        (put("webapp", None), "webapp.auth.authenticators[sso] removed", AFTER),
    ],
)
def test_changes(
    edited: Callable[[Edit], tuple[Config, Config]], edit: Edit, expected: str | None, effect: str
) -> None:
    """J-1, G-5, G-6, G-13: what was added, removed and changed, with key and values, and what a reload does."""
    old, new = edited(edit)
    changes = config_changes(old, new)
    assert [change.text[: len(expected or "")] for change in changes] == ([] if expected is None else [expected])
    assert not any("hunter" in change.text for change in changes)
    effects = reload_effects(old, new, {})
    assert [found.change for found in effects] == changes
    assert all((effect in found.effect, bool(found.effect)) == (True, bool(effect)) for found in effects)


def test_effects(edited: Callable[[Edit], tuple[Config, Config]]) -> None:
    """G-8: a provider whose new section is refused goes on as it is, though nothing of what runs changes."""
    old, new = edited(put("providers/+", LAB2))
    (_, lab), (_, lab2) = sorted(
        (one.change.name, one.effect) for one in reload_effects(old, new, {"lab": "x", "lab2": "y"})
    )
    assert lab == "the new section is refused, the running one goes on with its old section: x"
    assert lab2 == "the new section is refused, it is not served: y"
    (effect,) = reload_effects(*edited(put("providers", [])), {})
    values = {"kind": "provider", "name": "lab", "what": "removed", "details": (), "effect": effect.effect}
    assert effect.to_dict() == values

    def no_labels(data: dict[str, Any]) -> None:
        data.update(providers=[], labels=[])

    effects = {one.change.name: one.effect for one in reload_effects(*edited(no_labels), {})}
    assert effects["small"] == "requests for it are declined"


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


def of_provider(old: dict[str, Any], new: dict[str, Any], files: str = "") -> Change:
    before, after = Config(), Config()
    before.providers["cloud"] = Provider(old)  # type: ignore[assignment]
    after.providers["cloud"] = Provider(new, files)  # type: ignore[assignment]
    (change,) = config_changes(before, after)
    return change


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        *(({key: "a"}, {key: "b"}, f"{key} changed") for key in ("password", "api-key", "userdata")),
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
    assert of_provider(old, new).text == f"provider cloud changed: {expected}"


def test_bounds() -> None:
    """J-1: nothing of other files, e.g. clouds.yaml, is shown; a line has the first differences."""
    change = of_provider({"name": "cloud"}, {"name": "cloud"}, files="other")
    assert change.text == "provider cloud changed: something that it reads beside its section"
    change = of_provider({}, {f"key{number}": number for number in range(50)})
    assert (len(change.details), change.text.endswith(f"; and {50 - MAX_DETAILS} more")) == (50, True)


class Odd:
    """Equal to all; `!=` is not asked."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


@given(*[st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1))] * 2)
def test_every_provider_once(old: dict[str, int], new: dict[str, int]) -> None:
    """G-4, G-5, G-6: kept, changed, removed, added; doing the plan gives the new configuration."""
    plan = compare(old, new)
    assert {name for name in old if new.get(name) == old[name]} == set(plan.kept)
    assert sorted((*plan.added, *plan.changed, *plan.kept)) == sorted(new)
    assert sorted((*plan.removed, *plan.changed, *plan.kept)) == sorted(old)
    assert compare({"a": Odd()}, {"a": Odd()}).kept == ("a",)


# -- maintenance

HOSTS = ("l1", "l1.example.com")


def paused(kind: str, name: str, until: float | None = None) -> Maintenance:
    return Maintenance(kind, name, Mode.PAUSE, "why", "alice@desk", 900.0, until)


def records(*found: Maintenance) -> MaintenanceRecords:
    return {(record.kind, record.name): record for record in found}


PROVIDER, POOL, LAUNCHER = paused("provider", "cloud-1"), paused("pool", "cloud-1/main"), paused("launcher", "l1")
DRAINED = Maintenance("launcher", "l1.example.com", Mode.DRAIN)
WHOLE, ONE = (Maintenance("host", name, Mode.QUARANTINE) for name in ("h7", "zuul@h8:22"))
FIRST, LAST = paused("label", "a", until=1010.0), paused("label", "b", until=1020.0)
NODE = Node("big")
NODE.provider, NODE.pool, NODE.hostname, NODE.username, NODE.connection_port = "cloud-1", "main", "h7", "zuul", 22
BY_LOGIN = Maintenance("host", "zuul@h7:22", Mode.QUARANTINE)


@pytest.mark.parametrize(
    ("rule", "arguments", "found", "expected"),
    [
        # MT-9: a record is over at its end, not before.
        *((of_subject, ("label", "a", at), [FIRST], FIRST if at < 1010 else None) for at in (1009.0, 1010.0)),
        (of_subject, ("provider", "a", NOW), [FIRST], None),
        *((of_pool, (HOSTS, "cloud-1", "main", NOW), found, found[-1]) for found in ([POOL], [POOL, PROVIDER])),
        (of_pool, (HOSTS, "cloud-1", "main", NOW), [PROVIDER, POOL, LAUNCHER], LAUNCHER),
        (of_pool, (HOSTS, "cloud-1", "main", NOW), [paused("provider", "cloud-1", until=NOW), POOL], POOL),
        (of_pool, (HOSTS, "cloud-1", "main", NOW), [paused("pool", "cloud-2/main"), paused("launcher", "l2")], None),
        (of_launcher, (HOSTS, NOW), [LAUNCHER], LAUNCHER),
        (of_launcher, (HOSTS, NOW), [LAUNCHER, DRAINED], DRAINED),
        (of_launcher, (["l3"], NOW), [LAUNCHER, DRAINED], None),
        (of_labels, (1015.0,), [FIRST, LAST, PROVIDER], {"b": LAST}),
        *((of_host, ("h7", *login, NOW), [WHOLE, ONE], WHOLE) for login in (("zuul", 22), (None, None))),
        (of_host, ("h8", "zuul", 22, NOW), [WHOLE, ONE], ONE),
        (of_host, ("h8", "zuul", 2022, NOW), [WHOLE, ONE], None),
        # T-14: nothing new is put on a node of what is out of service.
        *((of_node, (NODE, "big", NOW), [one], one) for one in (PROVIDER, POOL, paused("label", "big"), BY_LOGIN)),
        (of_node, (NODE, "big", NOW), [], None),
        (of_node, (NODE, "big", NOW), [LAUNCHER, paused("label", "small"), paused("pool", "cloud-1/x")], None),
        *(
            (next_end, (at,), [LAST, FIRST, PROVIDER], end)
            for at, end in ((NOW, 1010.0), (1010.0, 1020.0), (2e3, None))
        ),
        *((ended, (at,), [LAST, FIRST, PROVIDER], end) for at, end in ((1010.0, [FIRST]), (NOW, []))),
    ],
)
def test_maintenance(
    rule: Callable[..., object], arguments: tuple[Any, ...], found: list[Maintenance], expected: object
) -> None:
    """MT-9, T-14: which record holds for what."""
    assert rule(records(*found), *arguments) == expected


def test_reason_of_maintenance() -> None:
    """MT-9: with its end; each record that holds requests back has a code of its own."""
    found = reason(paused("provider", "cloud-1", until=1010.0))
    assert (found.code, found.text) == (ReasonCode.PROVIDER_PAUSED, "provider cloud-1 is paused by alice@desk: why")
    assert (found.numbers, reason(PROVIDER).numbers) == ({"since": 900.0, "until": 1010.0}, {"since": 900.0})
    codes = [reason(Maintenance(kind, "x", mode)).code for kind in MODES if kind != "host" for mode in MODES[kind]]
    assert len(set(codes)) == len(codes)


KINDS = ("provider", "pool", "label", "launcher")
KNOWN = {
    "provider": {"cloud-1", "cloud-2", "gpu"},
    "pool": {"cloud-1/main", "cloud-1/big", "cloud-2/main"},
    "label": {"debian", "gpu"},
    "launcher": {"l1.example.com", "l2.example.com"},
    "host": {f"zuul@h{number:02}:22" for number in range(12)},
}


@pytest.mark.parametrize(
    ("name", "kinds", "known", "expected"),
    [
        ("cloud-1", KINDS, KNOWN, Subject("provider", "cloud-1")),
        ("cloud-1/main", KINDS, KNOWN, Subject("pool", "cloud-1/main")),
        ("big", KINDS, KNOWN, Subject("pool", "cloud-1/big")),
        ("l1", KINDS, KNOWN, Subject("launcher", "l1.example.com")),
        ("gpu", ("label",), KNOWN, Subject("label", "gpu")),
        ("main", KINDS, KNOWN, "'main' may be pool cloud-1/main, pool cloud-2/main: say which"),
        ("gpu", KINDS, KNOWN, "'gpu' may be provider gpu, label gpu: say which"),
        ("debain", ["label"], KNOWN, "there is no label 'debain', did you mean 'debian'? (labels: debian, gpu)"),
        ("nothing", KINDS, KNOWN, "there is no provider, pool, label or launcher 'nothing'"),
        ("debian", ["label"], {}, "no label is known: does any launcher run"),
        (
            "x",
            ["host"],
            KNOWN,
            "there is no host 'x' (hosts: " + ", ".join(f"zuul@h{n:02}:22" for n in range(10)) + " ...)",
        ),
    ],
)
def test_subjects(name: str, kinds: list[str], known: dict[str, set[str]], expected: Subject | str) -> None:
    """What an operator means who names something."""
    if isinstance(expected, Subject):
        assert find(name, kinds, known) == expected
        return
    with pytest.raises(UnclearSubject) as caught:
        find(name, kinds, known)
    assert str(caught.value).startswith(expected)
    assert caught.value.unknown is not expected.endswith("say which")


def test_what_is_not_paused_does_exist() -> None:
    """``resume`` knows only what is paused."""
    with pytest.raises(UnclearSubject, match=r"^no provider, pool, label or launcher 'cloud-2' is paused or drained"):
        find("cloud-2", KINDS, {"provider": {"cloud-1"}}, "paused or drained")
    with pytest.raises(UnclearSubject, match=r"^no pool is paused or drained$"):
        find("main", ["pool"], {"provider": {"cloud-1"}}, "paused or drained")
