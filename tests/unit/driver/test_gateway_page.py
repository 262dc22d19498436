# SPDX-License-Identifier: Apache-2.0
"""`architecture.rst` shows each hook with its policy, and each row of the table of failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from nodepool.driver import gateway
from nodepool.plan.launch import TABLE

PAGE = Path(__file__).parents[3] / "doc" / "source" / "explanation" / "architecture.rst"
OWNERS = {
    "driver": "Driver",
    "provider": "Provider",
    "handler": "NodeRequestHandler",
    "adapter": "Adapter",
    "machine": "StateMachine",
}


def list_table(widths: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {'*' if column == 0 else ' '} - {text}".rstrip() for column, text in enumerate(row)]
    return "\n".join(lines) + "\n"


def hooks() -> str:
    rows = [
        (
            f"``{OWNERS[hook.contract]}.{hook.name}``",
            "yes" if hook.bound.blocks else "no",
            hook.bound.text,
            hook.policy.text,
        )
        for hook in gateway.HOOKS
    ]
    return list_table("30 10 25 35", ("Hook", "May block", "Late after", "If it raises"), rows)


def failures() -> str:
    rows = [
        (
            "all others" if row.error is BaseException else f"``{row.error.__name__}``",
            row.kind.value,
            f"``{row.node_state}``",
            f"``{row.statsd_key}``" if row.statsd_key else "its own, else ``error.unknown``",
            "yes" if row.retry else "no",
        )
        for row in TABLE
    ]
    return list_table("30 15 10 30 15", ("Exception", "Kind", "Node", "Statistics key", "Another attempt"), rows)


def test_hooks() -> None:
    assert hooks() in PAGE.read_text(encoding="utf-8")


def test_failures() -> None:
    assert failures() in PAGE.read_text(encoding="utf-8")
