# SPDX-License-Identifier: Apache-2.0
"""What a new configuration changes, and what maintenance records hold back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import MODES, Maintenance, Mode
from nodepool.plan import maintenance
from nodepool.plan.config_diff import MAX_DETAILS, Change, config_changes, reload_effects
from nodepool.plan.maintenance import UnclearSubject, find, reason
from tests.support.tables import rows

BASE = """
zookeeper-servers: [{host: zk1, port: 2281}]
zookeeper-tls: {cert: /c.pem, key: /k.pem, ca: /ca.pem}
labels: [{name: small, min-ready: 1}, {name: big}, {name: spare}]
diskimages: [{name: debian, elements: [vm, debian], env-vars: {PASS: hunter2}}]
providers:
  - name: lab
    driver: static
    pools: [{name: main, nodes: [{name: host1, labels: [small]}, {name: host1, labels: [big], username: x}]}]
tenant-resource-limits: [{tenant-name: t1, max-cores: 10}]
webapp: {auth: {authenticators: [{name: sso, driver: HS256, client_id: c, issuer_id: i, secret: hunter2}]}}
"""
LAB2 = {**yaml.safe_load(BASE)["providers"][0], "name": "lab2"}
Edited = Callable[..., tuple[Config, Config]]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """The configuration before and after an edit of the file: ``edited(path, value)``, see the table."""

    def load(data: dict[str, Any]) -> Config:
        path = tmp_path / "nodepool.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        return load_config(str(path))

    def edited(path: str, value: Any) -> tuple[Config, Config]:
        data = place = yaml.safe_load(BASE)
        *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        for step in steps:
            place = place[step]
        if last == "+":
            place.append(value)
        elif value is None:
            del place[last]
        else:
            place[last] = value
        return load(yaml.safe_load(BASE)), load(data)

    return edited


@rows(__file__, "config_changes")
def test_changes(edited: Edited, path: str, value: Any, expected: str | None, effect: str) -> None:
    """J-1, G-5, G-6, G-13: what was added, removed and changed, with key and values, and what a reload does."""
    old, new = edited(path, value)
    changes = config_changes(old, new)
    assert [change.text[: len(expected or "")] for change in changes] == ([] if expected is None else [expected])
    assert not any("hunter" in change.text for change in changes)
    effects = reload_effects(old, new, {})
    assert [found.change for found in effects] == changes
    assert all((effect in found.effect, bool(found.effect)) == (True, bool(effect)) for found in effects)


def test_effects(edited: Edited) -> None:
    """G-8: a provider whose new section is refused goes on as it is, though nothing of what runs changes."""
    old, new = edited("providers/+", LAB2)
    (change,) = config_changes(old, new)
    assert change.text == "provider lab2 added (driver static, pool main with big, small)"
    (_, lab), (_, lab2) = sorted(
        (one.change.name, one.effect) for one in reload_effects(old, new, {"lab": "x", "lab2": "y"})
    )
    assert lab == "the new section is refused, the running one goes on with its old section: x"
    assert lab2 == "the new section is refused, it is not served: y"
    (effect,) = reload_effects(*edited("providers", []), {})
    values = {"kind": "provider", "name": "lab", "what": "removed", "details": (), "effect": effect.effect}
    assert effect.to_dict() == values


def of_provider(old: dict[str, Any], new: dict[str, Any], files: str = "") -> Change:
    before, after = Config(), Config()
    # Of a provider only these are compared.
    before.providers["cloud"] = cast(Any, SimpleNamespace(provider=old, files=""))
    after.providers["cloud"] = cast(Any, SimpleNamespace(provider=new, files=files))
    (change,) = config_changes(before, after)
    return change


@rows(__file__, "sections_of_any_driver")
def test_sections_of_any_driver(old: dict[str, Any], new: dict[str, Any], expected: str) -> None:
    """J-1."""
    assert of_provider(old, new).text == f"provider cloud changed: {expected}"


def test_bounds() -> None:
    """J-1: nothing of other files, e.g. clouds.yaml, is shown; a line has the first differences."""
    change = of_provider({"name": "cloud"}, {"name": "cloud"}, files="other")
    assert change.text == "provider cloud changed: something that it reads beside its section"
    change = of_provider({}, {f"key{number}": number for number in range(50)})
    assert (len(change.details), change.text.endswith(f"; and {50 - MAX_DETAILS} more")) == (50, True)


# -- maintenance

NODE = Node("big")
NODE.provider, NODE.pool, NODE.hostname, NODE.username, NODE.connection_port = "cloud-1", "main", "h7", "zuul", 22
WORDS: dict[str, Any] = {"hosts": ("l1", "l1.example.com"), "node": NODE}


def record(text: str) -> Maintenance:
    kind, name, *until = text.split()
    mode = Mode.QUARANTINE if kind == "host" else Mode.DRAIN if name == "l1.example.com" else Mode.PAUSE
    return Maintenance(kind, name, mode, "why", "alice@desk", 900.0, float(until[0]) if until else None)


@rows(__file__, "maintenance")
def test_maintenance(rule: str, arguments: list[Any], records: list[str], expected: Any) -> None:
    """MT-9, T-14: which record holds for what."""
    there = {(one.kind, one.name): one for one in map(record, records)}
    given = [WORDS.get(value, value) if isinstance(value, str) else value for value in arguments]
    assert named(getattr(maintenance, rule)(there, *given)) == expected


def named(found: Any) -> Any:
    """An answer with the names of records."""
    if isinstance(found, Maintenance):
        return f"{found.kind} {found.name}"
    found = list(found.values()) if isinstance(found, dict) else found
    return [named(one) for one in found] if isinstance(found, list) else found


def test_reason_of_maintenance() -> None:
    """MT-9: with its end; each record that holds requests back has a code of its own."""
    found = reason(record("provider cloud-1 1010"))
    assert (found.code, found.text) == (ReasonCode.PROVIDER_PAUSED, "provider cloud-1 is paused by alice@desk: why")
    assert (found.numbers, reason(record("pool x")).numbers) == ({"since": 900.0, "until": 1010.0}, {"since": 900.0})
    codes = [reason(Maintenance(kind, "x", mode)).code for kind in MODES if kind != "host" for mode in MODES[kind]]
    assert len(set(codes)) == len(codes)


@rows(__file__, "subjects")
def test_subjects(name: str, kinds: list[str], known: dict[str, list[str]], expected: str) -> None:
    """What an operator means who names something."""
    if expected.split()[0] in MODES:
        assert " ".join(find(name, kinds, known)) == expected
        return
    with pytest.raises(UnclearSubject) as caught:
        find(name, kinds, known)
    assert str(caught.value).startswith(expected)
    assert caught.value.unknown is not expected.endswith("say which")
