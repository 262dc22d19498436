# SPDX-License-Identifier: Apache-2.0
"""What the code logs at INFO and above, collected from its source, and the page about it.

In a page, ``.. log-messages::`` becomes tables of the messages of ``log-messages.csv``, which says what they mean and
what to do. Texts, levels and loggers are those of the code. ``.. unforeseen-errors::`` becomes the list of the texts
with which errors that were not foreseen are logged (`nodepool.guard.Guard`).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from nodepool import log_names

PACKAGE: Final = Path(__file__).parents[3] / "nodepool"
#: A line for each meaning, ``meaning | what to do | message | message ...``, below a line ``# section``.
ENTRIES: Final = Path(__file__).parents[1] / "reference" / "log-messages.csv"
MESSAGES: Final = re.compile(r"^\.\. log-messages::\n", re.MULTILINE)
UNFORESEEN: Final = re.compile(r"^\.\. unforeseen-errors::\n", re.MULTILINE)
#: Simulators, and drivers that are only there to try or to copy something.
_LEFT_OUT: Final = ("testing/", "driver/fake/")
#: Method of a logger -> how the level is written; that of ``log`` depends on the case.
_LEVELS: Final = {
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "critical": "CRITICAL",
    "exception": "ERROR",
    "log": "",
}
_LOGS: Final = re.compile(r"\.(?:logged|info|warning|error|critical|exception|log)\(|\b(?:Guard|tell_error)\(")
_PLACEHOLDER: Final = re.compile(r"%%|%(?:\(\w+\))?[-#0 +]*[\d.]*[a-zA-Z]")
#: The class and the function that a piece of code is in; empty = none.
Owner = tuple[str, str]
Assignments = Sequence[tuple[Owner, ast.Assign]]


class Message(NamedTuple):
    """A text that is logged."""

    #: As the documentation writes it: ``...`` is what differs from line to line.
    text: str
    #: Empty = it depends on the case.
    level: str
    #: Empty = that of who calls.
    logger: str
    #: Where, relative to the package.
    place: str


class Entry(NamedTuple):
    """What only people know of some messages."""

    section: str
    meaning: str
    #: Empty = nothing.
    advice: str
    texts: tuple[str, ...]


def messages(package: Path = PACKAGE) -> Iterator[Message]:
    """All that is logged at INFO and above with words of its own."""
    for path, calls, assignments in _files(package):
        loggers = dict(_loggers(assignments))
        for owner, node in calls:
            method, first = node.func, 0
            if isinstance(method, ast.Name) and method.id == "tell_error":
                level, logger, first = "ERROR", loggers.get(("", "", "log"), ""), 2
            elif isinstance(method, ast.Attribute) and method.attr == "logged":
                # `nodepool.driver.framework.fact.Repeats`
                level, logger, first = "WARNING", loggers.get(("", "", "log"), ""), 2
            elif isinstance(method, ast.Attribute) and method.attr in _LEVELS:
                receiver = ast.unparse(method.value)
                if "log" not in receiver.lower():
                    continue
                level, first = _LEVELS[method.attr], int(method.attr == "log")
                head, _, name = receiver.rpartition(".")
                local = loggers.get((*owner, name), "") if not head else ""
                logger = local or loggers.get((owner[0] if head in {"self", "cls"} else head, "", name), "")
                if first and node.args and ast.unparse(node.args[0]).endswith("DEBUG"):
                    continue
            else:
                continue
            text = _text(node.args[first], assignments) if len(node.args) > first else ""
            if text:
                yield Message(text, level, logger, path)


def unforeseen(package: Path = PACKAGE) -> Iterator[Message]:
    """What is logged, with a traceback or the error behind it, where an error was not foreseen."""
    for path, calls, _ in _files(package):
        for _, node in calls:
            if isinstance(node.func, ast.Name) and node.func.id == "Guard" and len(node.args) > 1:
                level = next((ast.unparse(word.value) for word in node.keywords if word.arg == "level"), "ERROR")
                text = _text(node.args[1])
                if text and not level.endswith("DEBUG"):
                    yield Message(text, level.rpartition(".")[2], "", path)


def entries(path: Path = ENTRIES) -> Iterator[Entry]:
    """What the file says."""
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            section = line.removeprefix("# ")
        elif line:
            meaning, advice, *texts = (cell.strip() for cell in line.split(" | "))
            yield Entry(section, meaning, advice, tuple(texts))


def shown(template: str) -> str:
    """A text of the code as the documentation writes it; empty if it has no words of its own."""
    text = " ".join(_PLACEHOLDER.sub(lambda found: "%" if found[0] == "%%" else "...", template).split())
    text = re.sub(r"(?:\.\.\.){2,}", "...", text)
    return text if re.search(r"[A-Za-z]{3}", text) else ""


@cache
def _files(package: Path) -> list[tuple[str, list[tuple[Owner, ast.Call]], list[tuple[Owner, ast.Assign]]]]:
    """Each file with its calls and assignments, in their order."""
    found = []
    for path in sorted(package.rglob("*.py")):
        place = str(path.relative_to(package))
        text = path.read_text(encoding="utf-8")
        # To parse a file takes long.
        if not place.startswith(_LEFT_OUT) and _LOGS.search(text):
            nodes = list(_nodes(ast.parse(text)))
            calls = [(owner, node) for owner, node in nodes if isinstance(node, ast.Call)]
            found.append((place, calls, [(owner, node) for owner, node in nodes if isinstance(node, ast.Assign)]))
    return found


def _nodes(tree: ast.Module) -> Iterator[tuple[Owner, ast.AST]]:
    stack: list[tuple[Owner, ast.AST]] = [(("", ""), tree)]
    while stack:
        owner, node = stack.pop()
        yield owner, node
        if isinstance(node, ast.ClassDef):
            owner = node.name, ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            owner = owner[0], node.name
        stack.extend((owner, child) for child in reversed(list(ast.iter_child_nodes(node))))


def _loggers(assignments: Assignments) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Class, function and name of what holds a logger -> name of the logger."""
    for owner, node in assignments:
        for call in ast.walk(node.value) if isinstance(node.value, ast.Call) else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("getLogger") and call.args:
                for target in node.targets:
                    local = owner[1] if isinstance(target, ast.Name) else ""
                    yield (owner[0], local, ast.unparse(target).rpartition(".")[2]), _logger(call.args[0])


def _logger(name: ast.expr) -> str:
    """The name of a logger: a literal text, or one of `nodepool.log_names`."""
    if isinstance(name, ast.Constant):
        return str(name.value)
    called = name.func if isinstance(name, ast.Call) else name
    found = getattr(log_names, called.attr, "") if isinstance(called, ast.Attribute) else ""
    if callable(found):
        return str(found(*(f"<{parameter}>" for parameter in inspect.signature(found).parameters)))
    return str(found)


def _text(node: ast.expr, assignments: Assignments = ()) -> str:
    """A literal text, or the one that a variable got last."""
    if isinstance(node, ast.Name):
        names = ((one, one.targets[0]) for _, one in assignments if one.lineno < node.lineno)
        before = [one for one, target in names if isinstance(target, ast.Name) and target.id == node.id]
        return _text(max(before, key=lambda one: one.lineno).value) if before else ""
    if isinstance(node, ast.JoinedStr):
        return shown("".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values))
    return shown(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def expand(text: str) -> str:
    """A page with its tables and lists."""
    # To read the whole package takes seconds, and nearly all pages have neither.
    if MESSAGES.search(text):
        text = MESSAGES.sub(lambda _: "\n".join(_tables()) + "\n", text)
    if UNFORESEEN.search(text):
        lines = (f"* ``{message.text}``" for message in sorted({m.text: m for m in unforeseen()}.values()))
        text = UNFORESEEN.sub(lambda _: "\n".join(lines) + "\n", text)
    return text


def _tables() -> Iterator[str]:
    found: dict[str, set[Message]] = {}
    for message in messages():
        found.setdefault(message.text, set()).add(message)
    section = ""
    for entry in entries():
        if entry.section != section:
            section = entry.section
            yield from ("", section, "-" * len(section), "")
            yield from (".. list-table::", "   :header-rows: 1", "   :widths: 44 33 23", "")
            yield from ("   * - Message, level, logger", "     - Meaning", "     - What to do")
        lead = "   * - "
        for text in entry.texts:
            yield f"{lead}| ``{text}``"
            lead = "       "
            yield f"{lead}| {_origin(found[text])}"
        yield f"     - {entry.meaning}"
        yield f"     - {entry.advice or 'Nothing.'}"


def _origin(same: Iterable[Message]) -> str:
    """Levels and loggers of a text."""
    levels = sorted({one.level or "level as the case is" for one in same})
    loggers = sorted({one.logger for one in same if one.logger})
    return ", ".join([*levels, *(f"``{logger}``" for logger in loggers)])


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. Tables and lists are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        if MESSAGES.search(source[0]):
            for path in (ENTRIES, *(PACKAGE / place for place, _, _ in _files(PACKAGE))):
                app.env.note_dependency(str(path))
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
