# SPDX-License-Identifier: Apache-2.0
"""What the code logs at INFO and above, collected from its source.

In a page, ``.. unforeseen-errors::`` becomes the list of the texts with which errors that nobody foresaw are logged
(`nodepool.guard.Guard`). The others have rows of their own in ``reference/log-messages.rst``; a test compares them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[3] / "nodepool"
DIRECTIVE: Final = re.compile(r"^\.\. unforeseen-errors::\n", re.MULTILINE)
#: Simulators, and drivers that are only there to try or to copy something.
_LEFT_OUT: Final = ("testing/", "driver/fake/", "driver/example/")
#: Method of a logger -> how the level is written; that of ``log`` depends on the case.
_LEVELS: Final = {
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "critical": "CRITICAL",
    "exception": "ERROR",
    "log": "",
}
_PLACEHOLDER: Final = re.compile(r"%(?:\(\w+\))?[-#0 +]*[\d.]*[a-zA-Z]")


class Message(NamedTuple):
    """A text that is logged."""

    #: As the documentation writes it: ``...`` is what differs from line to line.
    text: str
    #: Empty = it depends on the case.
    level: str
    #: Where, relative to the package.
    place: str


def messages(package: Path = PACKAGE) -> Iterator[Message]:
    """All that is logged at INFO and above with words of its own."""
    for path, node in _calls(package):
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr not in _LEVELS:
            continue
        if "log" not in ast.unparse(method.value).lower():
            continue
        arguments = node.args[1:] if method.attr == "log" else node.args
        text = _text(arguments[0]) if arguments else ""
        if method.attr == "log" and node.args and ast.unparse(node.args[0]).endswith("DEBUG"):
            continue
        if text:
            yield Message(text, _LEVELS[method.attr], path)


def unforeseen(package: Path = PACKAGE) -> Iterator[Message]:
    """What is logged, with a traceback or the error behind it, where an error was not foreseen."""
    for path, node in _calls(package):
        if isinstance(node.func, ast.Name) and node.func.id == "Guard" and len(node.args) > 1:
            level = next((ast.unparse(word.value) for word in node.keywords if word.arg == "level"), "ERROR")
            text = _text(node.args[1])
            if text and not level.endswith("DEBUG"):
                yield Message(text, level.rpartition(".")[2], path)


def shown(template: str) -> str:
    """A text of the code as the documentation writes it; empty if it has no words of its own."""
    text = " ".join(_PLACEHOLDER.sub("...", template).replace("%%", "%").split())
    text = re.sub(r"(?:\.\.\.){2,}", "...", text)
    return text if re.search(r"[A-Za-z]{3}", text) else ""


def _calls(package: Path) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(package.rglob("*.py")):
        place = str(path.relative_to(package))
        if place.startswith(_LEFT_OUT):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield place, node


def _text(node: ast.expr) -> str:
    return shown(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def expand(text: str) -> str:
    """A page with its lists."""
    if not DIRECTIVE.search(text):
        # To read the whole package takes seconds, and nearly all pages have no list.
        return text
    lines = (f"* ``{message.text}``" for message in sorted({m.text: m for m in unforeseen()}.values()))
    return DIRECTIVE.sub(lambda _: "\n".join(lines) + "\n", text)


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The lists are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
