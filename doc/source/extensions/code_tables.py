# SPDX-License-Identifier: Apache-2.0
"""Tables that the code has: calls of drivers, and the moves of a request.

In a page, ``.. driver-calls::`` becomes the table of `nodepool.driver.gateway.HOOKS`, and ``.. request-moves::`` the
list of `nodepool.plan.triage.MOVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from nodepool.driver.gateway import HOOKS
from nodepool.plan.triage import MOVES

#: What a hook is a method of -> class of the driver interface.
CLASSES: Final = {
    "driver": "Driver",
    "provider": "Provider",
    "handler": "NodeRequestHandler",
    "adapter": "Adapter",
    "machine": "StateMachine",
}


def driver_calls() -> Iterator[str]:
    """Each method of a driver, with its limit of time, and what follows when it raises."""
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 30 10 25 35", "")
    yield from _row("Method", "May block", "Late after", "If it raises")
    for hook in HOOKS:
        blocks = "yes" if hook.bound.blocks else "no"
        yield from _row(f"``{CLASSES[hook.contract]}.{hook.name}``", blocks, hook.bound.text, hook.policy.text)


def request_moves() -> Iterator[str]:
    """Each move of a request in a pool, and when it is made."""
    yield from (".. code-block:: text", "")
    for (origin, target), reason in MOVES.items():
        yield f"    {origin.value} -> {target.value}: {reason}"


DIRECTIVES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    ".. driver-calls::\n": driver_calls,
    ".. request-moves::\n": request_moves,
}


def _row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    for cell in others:
        yield f"     - {cell}"


def expand(text: str) -> str:
    """A page with its tables."""
    for directive, lines in DIRECTIVES.items():
        if directive in text:
            text = text.replace(directive, "\n".join(lines()) + "\n")
    return text


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The tables are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
