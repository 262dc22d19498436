# SPDX-License-Identifier: Apache-2.0
"""``nodepool pause``, ``drain``, ``resume``, ``quarantine``, ``release`` and ``maintenance`` (reference/commands 2)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.pool_znodes import POOLS, PoolZnodes


@pytest.fixture
def pools(znodes: PoolZnodes) -> None:
    """Two providers with one label each, of a launcher on l1."""
    for provider, label in (("cloud-1", "small"), ("cloud-2", "gpu")):
        entry = {
            "kind": "pool",
            "id": f"l1-{provider}",
            "hostname": "l1",
            "name": "main",
            "provider_name": provider,
            "supported_labels": [label],
            "priority": 100,
            "paused": False,
            "state": "running",
            "version": "1",
        }
        znodes.kazoo.create(f"{POOLS}/l1", json.dumps(entry).encode(), sequence=True, ephemeral=True, makepath=True)
    launcher = {"kind": "launcher", "hostname": "l1.example.com", "version": "1", "state": "running"}
    znodes.kazoo.create(
        "/nodepool/components/launcher/l1", json.dumps(launcher).encode(), sequence=True, ephemeral=True, makepath=True
    )


def listed(nodepool: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(nodepool("maintenance", "--format", "json").out)
    return found


@pytest.mark.usefixtures("pools")
def test_pause_and_resume(nodepool: CommandLine, znodes: PoolZnodes) -> None:
    """MT-1: with reason, by, since and until; the kind is guessed from the name."""
    assert listed(nodepool) == []
    result = nodepool("pause", "cloud-1", "--reason", "network", "--for", "2h")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("provider cloud-1 is paused by ")
    assert result.out.rstrip().endswith("Back with: nodepool resume provider cloud-1")
    (shown,) = listed(nodepool)
    assert (shown["kind"], shown["name"], shown["state"], shown["reason"]) == (
        *("provider", "cloud-1", "paused", "network"),
    )
    assert "@" in shown["by"]
    assert shown["until"] - shown["since"] == pytest.approx(7200)
    assert abs(shown["since"] - time.time()) < 600
    assert nodepool("drain", "pool", "cloud-2/main").out.startswith("A drain of a provider or a pool is a pause: ")
    assert nodepool("drain", "l1").status == 0
    assert nodepool("pause", "gpu").status == 0
    assert [f"{row['kind']} {row['name']} {row['state']}" for row in listed(nodepool)] == [
        *("label gpu paused", "launcher l1.example.com drained"),
        *("pool cloud-2/main paused", "provider cloud-1 paused"),
    ]
    for name in ("cloud-1", "main", "l1", "gpu"):
        assert nodepool("resume", name).status == 0
    assert listed(nodepool) == []
    assert znodes.children("/nodepool/maintenance/provider") == []


@pytest.mark.usefixtures("pools")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["pause", "cluod-1"], "did you mean 'cloud-1'?"),
        (["pause", "main"], "'main' may be pool cloud-1/main, pool cloud-2/main: say which"),
        (["pause", "label", "main"], "no label 'main'"),
        (["drain", "label", "gpu"], "write NAME or KIND NAME"),
        (["drain", "gpu"], "no provider, pool"),
        (["pause", "a", "b", "c"], "write NAME or KIND NAME"),
        (["pause", "provider", "."], "is no name"),
        (["resume", "cloud-1"], "nothing is paused or drained"),
        (["release", "h1"], "nothing is quarantined"),
        (["pause", "cloud-1", "--until", "2001-01-01T00:00"], "--until is in the past"),
    ],
)
def test_mistakes(nodepool: CommandLine, arguments: list[str], text: str) -> None:
    """reference/commands 2.2: one line, status 1, and nothing is written."""
    result = nodepool(*arguments)
    assert (result.status, result.out) == (1, "")
    assert text in result.err
    assert listed(nodepool) == []


def test_wrong_usage(nodepool: CommandLine) -> None:
    for arguments in (["quarantine", "h1"], ["pause", "x", "--for", "2"], ["pause", "x", "--until", "soon"], ["pause"]):
        assert nodepool(*arguments).status == 2


def test_what_no_launcher_knows(nodepool: CommandLine) -> None:
    """--force: before any launcher runs, for example."""
    result = nodepool("quarantine", "h7", "--reason", "fan")
    assert result.status == 1
    assert "no host is known" in result.err
    assert nodepool("quarantine", "h7", "--reason", "fan", "--force").status == 0
    assert [row["state"] for row in listed(nodepool)] == ["quarantined"]
    # As `hosts` and `explain` name it; the record is of the host's name alone.
    assert nodepool("release", "zuul@h8:22").status == 1
    assert nodepool("release", "zuul@h7:22").status == 0
    assert listed(nodepool) == []
