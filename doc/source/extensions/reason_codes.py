# SPDX-License-Identifier: Apache-2.0
"""The page about reasons, made of `nodepool.model.reasons.ReasonCode` and of what ``nodepool explain`` says.

In a page, ``.. reason-codes::`` becomes a table for each group of codes, and one of what the command looks for.
Meaning, numbers and advice stand in the comments above a code. Where the command has a sentence for a code
(`nodepool.plan.explained.SENTENCES`), that is the advice.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from nodepool.model import reasons
from nodepool.model.reasons import ReasonCode
from nodepool.plan import explained

DIRECTIVE: Final = re.compile(r"^\.\. reason-codes::\n", re.MULTILINE)
_MEMBER: Final = re.compile(r'[A-Z_]+ = "([a-z.-]+)"')
_PLACEHOLDERS: Final = {"logs": "its launcher", "request": "the id of the request", "provider": "NAME"}


class Code(NamedTuple):
    """One code."""

    #: The comment above its group.
    group: str
    code: str
    meaning: str
    #: Of the text; empty = it has none.
    numbers: str
    #: What to do; empty = nothing.
    advice: str


def codes() -> Iterator[Code]:
    """All codes, in the order of the source."""
    group, found, field = "", {"Meaning": "", "Numbers": "", "Do": ""}, "Meaning"
    for line in map(str.strip, inspect.getsource(ReasonCode).splitlines()):
        if line.startswith("#: "):
            word, colon, text = line.removeprefix("#: ").partition(": ")
            field, text = (word, text) if colon and word in found else (field, line.removeprefix("#: "))
            found[field] = f"{found[field]} {text}".strip()
        elif line.startswith("# "):
            group = f"{group} {line.removeprefix('# ')}".strip()
        elif match := _MEMBER.fullmatch(line):
            sentence = explained.SENTENCES.get(match[1], "").format(**_PLACEHOLDERS)
            # A key at its beginning stays as it is.
            sentence = sentence if "-" in sentence.partition(" ")[0] else sentence[:1].upper() + sentence[1:]
            advice = f"{sentence}." if sentence else found["Do"]
            yield Code(group, match[1], found["Meaning"], found["Numbers"].removesuffix("."), advice)
            found, field = dict.fromkeys(found, ""), "Meaning"
        elif not line:
            group = ""


def findings() -> dict[str, list[str]]:
    """What the command looks for -> the codes with which it does that; each of its sentences, with ``...``."""
    found: dict[str, list[str]] = {}
    for code, look in explained.REMEDIES.items():
        for sentence in _sentences(look):
            found.setdefault(sentence, []).append(code)
    return found


def _sentences(look: Callable[..., object]) -> Iterator[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(look)))
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    for node in sorted(formatted, key=lambda node: node.lineno):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
        # The formats of numbers are such nodes, too.
        if " " in text:
            yield text


def expand(text: str) -> str:
    """A page with its tables."""
    return DIRECTIVE.sub(lambda _: "\n".join(_tables()) + "\n", text)


def _tables() -> Iterator[str]:
    shown = None
    for one in codes():
        if one.group != shown:
            shown = one.group
            heading, _, more = shown.partition(". ")
            yield from ("", heading.removesuffix("."), "-" * len(heading), "", more, "")
            yield from _head("22 38 14 26", "Code", "Meaning", "Numbers", "What to do")
        yield f"   * - .. _reason-{one.code.replace('.', '-')}:"
        yield ""
        yield f"       ``{one.code}``"
        yield from (f"     - {cell}" for cell in (one.meaning, one.numbers or "none", one.advice or "Nothing."))
    heading = "What ``nodepool explain`` looks for"
    yield from ("", heading, "-" * len(heading), "")
    yield from ("With these codes the command also says what it finds:", "")
    yield from _head("30 70", "Code", "What it may say")
    by_codes: dict[tuple[str, ...], list[str]] = {}
    for sentence, same in findings().items():
        by_codes.setdefault(tuple(same), []).append(sentence)
    for found, sentences in by_codes.items():
        yield f"   * - {', '.join(f'``{code}``' for code in found)}"
        yield f"     - * ``{sentences[0]}``"
        yield from (f"       * ``{sentence}``" for sentence in sentences[1:])


def _head(widths: str, *titles: str) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", "")
    yield f"   * - {titles[0]}"
    yield from (f"     - {title}" for title in titles[1:])


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The tables are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        for module in (reasons, explained) if DIRECTIVE.search(source[0]) else ():
            app.env.note_dependency(module.__file__)
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
