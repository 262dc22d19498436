# SPDX-License-Identifier: Apache-2.0
"""Clauses that catch whatever is raised: few, each with its reason, and their list only shrinks.

For items of which one must not affect the others, passes of threads, listeners, and work that is undone after an error
there is `nodepool.guard`; for calls of drivers the gateway.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import nodepool

TOP = Path(nodepool.__file__).parent
SIMULATORS = TOP.parent / "simulators"
BROAD = re.compile(r"^\s*except\b.*\b(Exception|BaseException|ERRORS)\b.*:|^\s*except\s*:")

#: File -> how many it has.
LEFT = {
    "cmd/app.py": 1,
    "cmd/daemon.py": 1,
    "cmd/started_provider.py": 1,
    "cmd/service_runner.py": 1,
    "config/provider_check.py": 1,
    "driver/framework/keyscan.py": 1,
    "driver/framework/nodeset.py": 1,
    "driver/framework/quota_support.py": 1,
    "driver/framework/upload.py": 2,
    "driver/hooks.py": 1,
    "driver/handler.py": 1,
    "driver/openstack/clouds.py": 2,
    "driver/openstack/image_tasks.py": 1,
    "driver/openstack/transport.py": 1,
    "driver/registry.py": 2,
    "driver/statemachine/creation_machine.py": 1,
    "driver/statemachine/deletion.py": 2,
    "driver/statemachine/inventory.py": 1,
    "driver/statemachine/known.py": 1,
    "driver/statemachine/launch.py": 1,
    "driver/statemachine/leaks.py": 1,
    "driver/statemachine/phases/end_phase.py": 1,
    "driver/statemachine/phases/look_phase.py": 1,
    "guard.py": 1,
    "launcher/deleted_node_worker.py": 1,
    "launcher/pool/batch.py": 2,
    "launcher/pool/intake.py": 1,
    "launcher/pool/tenants.py": 1,
    "logconfig.py": 1,
    "testing/harness.py": 1,
    "simulators/base/application.py": 1,
    "zk/reply.py": 1,
    "zk/wire/watch_connection.py": 2,
}


def clauses() -> Iterator[tuple[str, str]]:
    """File, and the clause with the lines around it in which its reason may stand."""
    for top, within in ((TOP, TOP), (SIMULATORS, TOP.parent)):
        for path in sorted(top.rglob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines):
                if BROAD.match(line):
                    yield path.relative_to(within).as_posix(), "\n".join(lines[max(0, number - 2) : number + 3])


def test_the_list_shrinks() -> None:
    """A file that needs less than is listed: correct the list. One that needs more: see above."""
    assert Counter(file for file, _ in clauses()) == LEFT


def test_below_forty() -> None:
    assert sum(LEFT.values()) < 40


def test_each_has_its_reason() -> None:
    """A comment next to it."""
    assert [(file, text) for file, text in clauses() if "#" not in text] == []


def test_clauses_are_found() -> None:
    found = [
        "except Exception:",
        "except (ValueError, Exception) as e:",
        "except BaseException:",
        "except:",
        "except ERRORS:",
    ]
    others = ["except ValueError:", "except ZKException as error:", "# except Exception:"]
    assert [line for line in [*found, *others] if BROAD.match(line)] == found
