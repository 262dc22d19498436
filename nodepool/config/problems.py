# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a configuration, with file, line and key. Then how its files are read: values with their lines."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import logging
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from nodepool.clock import sleep
from nodepool.exceptions import ConfigError
from nodepool.model.config_keys import did_you_mean as did_you_mean
from nodepool.model.config_keys import names_a_secret

#: Longest piece of a value that a message shows.
MAX_SHOWN: Final = 40
#: Most problems that the text of one error lists, or that are logged.
MAX_REPORTED: Final = 1000
#: Instead of a value that is not shown.
HIDDEN: Final = "something else"


class Severity(enum.Enum):
    """How bad a problem is."""

    #: The file is refused.
    ERROR = "error"
    #: Correct, but this machine lacks something: a daemon cannot work with it. For ``config-validate`` without a secure
    #: file it is a warning, because a file may be checked elsewhere.
    INCOMPLETE = "incomplete"
    #: The provider of the section is left out: an error for ``config-validate``; a daemon serves the others.
    PROVIDER_ERROR = "provider error"
    #: Daemons go on, without what they leave out or with another value than is written: an error for
    #: ``config-validate``, a warning for a daemon.
    TOLERATED = "tolerated"
    #: A key that is not known: an error for ``config-validate``, a warning for a daemon.
    UNKNOWN_KEY = "unknown key"
    #: Legal, but probably not meant; or something that could not be checked.
    WARNING = "warning"


#: What a daemon refuses a file for.
_REFUSED: Final = (Severity.ERROR, Severity.INCOMPLETE)


@dataclass(frozen=True)
class Problem:
    """One finding.

    :param line: counted from 1; None = the file as a whole.
    :param key: path of the offending key, e.g. ``providers[0].pools[1].max-servers``; may be empty.
    :param path: the same, part by part.
    :param column: counted from 1; None = it was not looked for.
    """

    file: str
    line: int | None
    key: str
    message: str
    severity: Severity = Severity.ERROR
    path: tuple[Any, ...] = field(default=(), compare=False)
    column: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class Problems:
    """Collects problems while a configuration is read."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(
        self, file: str, line: int | None, path: Sequence[Any], message: str, severity: Severity = Severity.ERROR
    ) -> None:
        """Note a problem.

        :param path: keys and list positions from the top of the file to the offending place.
        """
        # One line each, whatever a driver's message looks like.
        self.found.append(Problem(file, line, key_text(path), " ".join(message.splitlines()), severity, tuple(path)))

    def change(self, before: Severity, after: Severity, start: int = 0) -> None:
        """Make problems of one severity those of another, from a position in ``found`` on."""
        for index, problem in enumerate(self.found[start:], start):
            if problem.severity is before:
                self.found[index] = dataclasses.replace(problem, severity=after)

    def confine(self, start: int) -> list[Problem]:
        """Make errors of the file those of a provider, from a position in ``found`` on; returns them."""
        self.change(Severity.ERROR, Severity.PROVIDER_ERROR, start)
        confined = (problem for problem in self.found[start:] if problem.severity is Severity.PROVIDER_ERROR)
        return list(dict.fromkeys(confined))

    def all(self) -> list[Problem]:
        """Everything that was found, in the order of the lines."""
        # The same value may be reached twice, through a YAML alias.
        return sorted(dict.fromkeys(self.found), key=lambda problem: (problem.file, problem.line or 0))

    def errors(self) -> list[Problem]:
        """What a daemon refuses the file for, in the order of the lines."""
        return [problem for problem in self.all() if problem.severity in _REFUSED]

    def finish(self, log: logging.Logger) -> None:
        """Log what the file is not refused for; raise ConfigError with the errors, one a line, if there is one."""
        errors = self.errors()
        others = [problem for problem in self.all() if problem.severity not in _REFUSED]
        for problem in others[:MAX_REPORTED]:
            log.log(logging.ERROR if problem.severity is Severity.PROVIDER_ERROR else logging.WARNING, "%s", problem)
        if errors:
            lines = [str(problem) for problem in errors[:MAX_REPORTED]]
            if len(errors) > MAX_REPORTED:
                lines.append(f"{errors[-1].file}: {len(errors) - MAX_REPORTED} more problems")
            raise ConfigError("\n".join(lines))


def key_text(path: Sequence[Any]) -> str:
    """A path as a reader writes it: ``providers[0].pools[1].name``."""
    text = ""
    for part in path:
        if isinstance(part, int) and not isinstance(part, bool):
            text += f"[{part}]"
        else:
            name = part if isinstance(part, str) and part and part.isprintable() else repr(part)
            text += f".{name}" if text else name
    return text


def listing(words: Iterable[object]) -> str:
    """Words for a sentence such as "allowed: a, b, c"."""
    return ", ".join(sorted(str(word) for word in words))


def show(value: object, path: Sequence[Any] = ()) -> str:
    """A value for a message: its kind, and the value itself when it is short and no secret."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple, set)):
        return "a list"
    if names_a_secret(path):
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


# YAML to plain Python values, with the line of every key.
#
# The values are built from the parser's events: in one pass, which also finds duplicate keys, and stops at input made
# to exhaust us (aliases that expand to millions of values, deep nesting). It is several times faster than PyYAML's own
# composer and constructor, because equal plain scalars are resolved once. Aliases share values. After that comes how
# the text of a file is read, and what is usually wrong where it cannot be parsed.

#: Values that aliases may add to those in the text, all together.
MAX_ALIAS_VALUES: Final = 1_000_000
#: Lists and mappings within each other, aliases followed.
MAX_DEPTH: Final = 50

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX: Final = "tag:yaml.org,2002:"
#: Tags of scalars; those of collections make no sense on one.
_SCALAR_TAGS: Final = frozenset(f"{_PREFIX}{kind}" for kind in ("null", "bool", "int", "float", "binary", "timestamp"))
#: Longest number, in bits: what is longer cannot even be printed, and nothing has a use for it.
_MAX_BITS: Final = 128
#: Longest text of a number that is read at all.
_MAX_DIGITS: Final = 200
_NUMBER_TAGS: Final = frozenset({f"{_PREFIX}int", f"{_PREFIX}float"})
_KINDS: Final = {"int": "a whole number", "float": "a number", "timestamp": "a date", "bool": "true or false"}
_MERGE: Final = object()
_MISSING: Final = object()
#: What reading a scalar of a wrong form may raise, such as the date 2024-13-45.
_SCALAR_ERRORS: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, yaml.YAMLError)


@dataclass
class Document:
    """A file's values.

    :param problems: what is wrong with the configuration, of which this is one file.
    :param data: what the file holds, of plain dicts, lists and scalars; None = nothing.
    """

    path: str
    problems: Problems
    data: Any = None
    #: As in `SourceText`.
    digest: str = ""
    #: id of a list or mapping -> its lines; `data` keeps the ids valid.
    lines: dict[int, Any] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)

    def line_of(self, path: Sequence[Any]) -> int | None:
        """Line, from 1, of the place that a path of keys and list positions leads to, or comes nearest to."""
        value: Any = self.data
        line = self.starts.get(id(value))
        for part in path:
            lines: Any = self.lines.get(id(value))
            try:
                line, value = lines[part], value[part]
            except (KeyError, IndexError, TypeError):
                break
        return line

    def note(self, path: Sequence[Any], message: str, severity: Severity = Severity.ERROR) -> None:
        """Note a problem. :param path: as for `line_of`."""
        self.problems.add(self.path, self.line_of(path), path, message, severity)

    def own_copy(self, value: Any) -> Any:
        """A copy of a part of the document, with its lines, that no alias leads to."""
        if isinstance(value, dict):
            copy: Any = {key: self.own_copy(item) for key, item in value.items()}
        elif isinstance(value, list):
            copy = [self.own_copy(item) for item in value]
        else:
            return value
        self.lines[id(copy)] = self.lines[id(value)].copy()
        self.starts[id(copy)] = self.starts[id(value)]
        return copy


def parse(source: SourceText, problems: Problems) -> Document:
    """Read a YAML document.

    Keys that are there twice, where the last one counts, and unreadable scalars are added to ``problems``, all of them.

    :raises ConfigError: the text is no YAML, or dangerous; one line with file and line number.
    """
    return _Builder(source, problems).build()


#: A value, how many values it has with itself, and how many levels of lists and mappings; aliases followed.
_Made = tuple[Any, int, int]


class _Builder:
    """Turns events into values. Used once."""

    def __init__(self, source: SourceText, problems: Problems) -> None:
        self._source = source
        self._problems = problems
        self._document = Document(source.path, problems, digest=source.digest)
        self._events: Iterator[Any] = yaml.parse(source.text, Loader=_LOADER)
        #: Keys and positions that lead to where the parser is, and in how many lists and mappings that is.
        self._path: list[Any] = []
        self._level = 0
        #: By anchor; None = it is being made.
        self._anchors: dict[str, _Made | None] = {}
        #: Plain scalars resolved before, by text.
        self._known: dict[str, Any] = {}
        self._tools: Any = yaml.SafeLoader("")
        self._alias_values = 0
        self._look_for_unset = "%(NODEPOOL_" in source.text

    def build(self) -> Document:
        documents = 0
        try:
            for event in self._events:
                if isinstance(event, yaml.NodeEvent):
                    self._document.data = self._node(event)[0]
                elif isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._refuse(event, "a second YAML document starts here; only one is allowed")
        except yaml.MarkedYAMLError as error:
            raise self._syntax_error(error) from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{self._source.path}: not YAML: {' '.join(str(error).split())}") from error
        except UnicodeError as error:
            # From an environment variable; the file itself is UTF-8.
            raise ConfigError(f"{self._source.path}: not UTF-8 text after substitution: {error}") from error
        return self._document

    def _node(self, event: Any) -> _Made:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        made = (self._scalar(event), 1, 0) if isinstance(event, yaml.ScalarEvent) else self._collection(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = made
        return made

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        line = event.start_mark.line
        if _is_plain(event):
            value = self._known.get(text, _MISSING)
            if value is _MISSING:
                count = len(self._problems.found)
                value = self._resolve(text, None, line)
                if len(self._problems.found) == count:
                    # What is wrong is reported wherever it stands.
                    self._known[text] = value
        elif event.tag is None or event.tag == "!":
            value = text
        else:
            value = self._resolve(text, event.tag, line)
        if self._look_for_unset and isinstance(value, str):
            self._warn_unset(value, line)
        return value

    def _collection(self, event: Any) -> _Made:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_PREFIX}map" if mapping else f"{_PREFIX}seq"):
            raise self._refuse(event, f"the YAML tag {event.tag!r} is not allowed here")
        if self._level >= MAX_DEPTH:
            raise self._too_deep(event.start_mark.line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._level += 1
        value, lines, size, depth = self._mapping() if mapping else self._sequence()
        self._level -= 1
        self._document.lines[id(value)] = lines
        self._document.starts[id(value)] = self._line(event)
        return value, size, depth

    def _alias(self, event: Any) -> _Made:
        if event.anchor not in self._anchors:
            raise self._refuse(event, f"the alias *{event.anchor} refers to nothing; there is no &{event.anchor} above")
        known = self._anchors[event.anchor]
        if known is None:
            raise self._refuse(event, f"the alias *{event.anchor} refers to a value that contains it")
        self._alias_values += known[1]
        if self._alias_values > MAX_ALIAS_VALUES:
            raise self._refuse(event, f"aliases expand to more than {MAX_ALIAS_VALUES} values")
        if self._level + known[2] > MAX_DEPTH:
            raise self._too_deep(event.start_mark.line)
        return known

    # -- what is in a list or mapping: the value, the line of each item or key, and as `_Made` --

    def _sequence(self) -> tuple[list[Any], list[int], int, int]:
        items: list[Any] = []
        lines: list[int] = []
        size = depth = 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            lines.append(self._line(event))
            self._path.append(len(items))
            item, more, below = self._node(event)
            self._path.pop()
            items.append(item)
            size, depth = size + more, max(depth, below + 1)
        return items, lines, size, depth

    def _mapping(self) -> tuple[dict[Any, Any], dict[Any, int], int, int]:
        values: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        merges: list[tuple[int, Any]] = []
        size = depth = 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = self._line(event)
            merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and _is_plain(event)
            key, size_of_key, _ = self._node(event)
            self._path.append(_MERGE if merge else key)
            value, more, below = self._node(next(self._events))
            self._path.pop()
            size, depth = size + size_of_key + more, max(depth, below + 1)
            if merge:
                merges.append((line, value))
            elif not isinstance(key, Hashable):
                self._problem(line, f"{show(key)} cannot be a key")
            else:
                if key in lines:
                    text = f"the key {key!r} is here again, first in line {lines[key]}; the last one counts, remove one"
                    self._problem(line, text, key, severity=Severity.WARNING)
                values[key], lines[key] = value, line
        self._merge(merges, values, lines)
        return values, lines, size, depth

    def _merge(self, merges: list[tuple[int, Any]], values: dict[Any, Any], lines: dict[Any, int]) -> None:
        """The merge key ``<<``: what the mapping itself has wins, then the first of a list."""
        for line, value in merges:
            for source in value if isinstance(value, list) else [value]:
                if not isinstance(source, dict):
                    self._problem(line, f"<< needs a mapping or a list of mappings, not {show(source)}")
                    continue
                for key, item in source.items():
                    if key not in values:
                        values[key], lines[key] = item, self._document.lines[id(source)][key]

    def _resolve(self, text: str, tag: str | None, line: int) -> Any:
        """Value of a scalar by its tag, or by its form."""
        if tag is None:
            tag = self._tools.resolve(yaml.ScalarNode, text, (True, False))
        if tag in (f"{_PREFIX}str", f"{_PREFIX}merge", f"{_PREFIX}value"):
            return text
        constructor = yaml.SafeLoader.yaml_constructors.get(tag) if tag in _SCALAR_TAGS else None
        node = yaml.ScalarNode(tag, text)
        try:
            if constructor is None:
                raise ValueError(f"the YAML tag {tag!r} is not allowed here")
            if len(text) > _MAX_DIGITS and tag in _NUMBER_TAGS:
                # PyYAML's time for 1:59:59:... grows with the square of the length.
                raise ValueError(text)
            value = constructor(self._tools, node)
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                raise ValueError(text)
            return value
        except _SCALAR_ERRORS as error:
            kind = _KINDS.get(str(tag).removeprefix(_PREFIX), "something else")
            reason = str(error) if constructor is None else f"{show(text)} looks like {kind}, but is none"
            self._problem(self._source.line(line), f"{reason}; put it in quotes if it is text")
            return text

    # -- reports --

    def _line(self, event: Any) -> int:
        return self._source.line(event.start_mark.line)

    def _problem(self, line: int, message: str, *more: Any, severity: Severity = Severity.ERROR) -> None:
        """Note a problem where the parser is now; ``more``: the rest of the way to it."""
        path = [part for part in self._path if part is not _MERGE]
        self._problems.add(self._source.path, line, [*path, *more], message, severity)

    def _warn_unset(self, text: str, line: int) -> None:
        for match in PLACEHOLDER.finditer(text):
            message = f"the environment variable {match[1]} is not set, {match[0]} stays as text"
            self._problem(self._source.line(line), message, severity=Severity.WARNING)

    def _too_deep(self, line: int) -> ConfigError:
        return ConfigError(f"{self._source.path}:{self._source.line(line)}: nested more than {MAX_DEPTH} levels deep")

    def _refuse(self, event: Any, message: str) -> ConfigError:
        return ConfigError(f"{self._source.path}:{self._line(event)}: {message}")

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> ConfigError:
        mark = error.problem_mark or error.context_mark
        number, column = (0, 0) if mark is None else (mark.line, mark.column)
        if "nesting depth" in (error.problem or ""):
            # libyaml of PyYAML 6.0.4 has a limit of its own, and reads ahead: our limit has had no event yet.
            return self._too_deep(number)
        reasons = [error.context, error.problem]
        if error.context and error.context_mark is not None and error.context_mark.line != number:
            reasons[0] = f"{error.context} that starts in line {self._source.line(error.context_mark.line)}"
        message = ": ".join(reason for reason in reasons if reason)
        text = "".join(self._source.text.split("\n")[number : number + 1])
        if unset := PLACEHOLDER.search(text):
            message = f"{message} (the environment variable {unset[1]} is not set)"
        elif meant := explain(error.problem or "", text, column):
            message = f"{meant} ({message})"
        return ConfigError(f"{self._source.path}:{self._source.line(number)}:{column + 1}: not YAML: {message}")


def _is_plain(event: Any) -> bool:
    """Is a scalar without quotes and tag?"""
    return bool(event.implicit[0]) and event.tag in (None, "!")


# Text of a configuration file: reading it, and ``%(NODEPOOL_...)`` (reference/configuration 1).

#: A missing file is looked for this often, so long apart in seconds: an editor may be replacing it just now.
READ_TRIES: Final = 3
READ_PAUSE_SECONDS: Final = 0.5
#: Larger files are refused; 2,000 labels in each of 20 providers are 2 MB.
MAX_BYTES: Final = 64 * 1024 * 1024

#: Hexadecimal digits of `SourceText.digest`.
DIGEST_LENGTH: Final = 12

PLACEHOLDER: Final = re.compile(r"%\((NODEPOOL_[^)\n]*)\)")


@dataclass(frozen=True)
class SourceText:
    """A file's text after substitution.

    :param lines: line after substitution -> line in the file, both from 0; None = they are the same.
    :param digest: begin of the SHA-256 checksum of the file, as ``sha256sum`` prints it.
    """

    path: str
    text: str
    lines: list[int] | None = field(default=None)
    digest: str = ""

    def line(self, number: int) -> int:
        """The line in the file, from 1, of a line after substitution, from 0."""
        if self.lines is None:
            return number + 1
        return self.lines[min(number, len(self.lines) - 1)] + 1


def read(path: str) -> SourceText:
    """Read a file and put in environment variables. Blocks about a second when there is no such file.

    :raises ConfigError: one line that says what is wrong.
    """
    data = _read_bytes(path)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB, this is no configuration")
    try:
        # An editor's byte order mark is no part of the text.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8 text: byte 0x{data[error.start]:02x}; save the file in UTF-8"
        raise ConfigError(f"{path}:{line}: {message}") from error
    made = substitute(path, text, os.environ)
    return replace(made, digest=hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH])


#: Why a file cannot be opened.
_REASONS: Final[Mapping[type[Exception], str]] = {
    FileNotFoundError: "no such file",
    IsADirectoryError: "is a directory, a file is needed",
    PermissionError: "may not be read by this user (permission denied)",
}


def _read_bytes(path: str) -> bytes:
    tries = 0
    while True:
        tries += 1
        try:
            with open(path, "rb") as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError) or tries == READ_TRIES:
                reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                raise ConfigError(f"{path}: {_REASONS.get(type(error), reason)}") from error
        sleep(READ_PAUSE_SECONDS)


def substitute(path: str, text: str, environ: Mapping[str, str]) -> SourceText:
    """Replace ``%(NODEPOOL_X)`` by the variable of that name; the name of an unset one stays as text."""
    if "%(NODEPOOL_" not in text:
        return SourceText(path, text)
    result: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(text.split("\n")):
        replaced = PLACEHOLDER.sub(lambda match: environ.get(match[1], match[0]), line)
        result.append(replaced)
        numbers.extend([number] * (replaced.count("\n") + 1))
    return SourceText(path, "\n".join(result), numbers)


# What is usually wrong where YAML cannot be parsed, in plain words.

#: What YAML reserves: a text cannot begin with one of these.
_RESERVED: Final = "@`%"
_INDENTATION: Final = (
    "wrong indentation: what belongs together must be equally far in; or a quote inside a text in quotes is not doubled"
)
_NOT_CLOSED: Final = "a quote or a bracket is not closed"
#: Words of the parser -> a hint.
_HINTS: Final = {
    **dict.fromkeys(("expected '-' indicator", "did not find expected key", "expected <block end>"), _INDENTATION),
    "mapping values are not allowed": "a second ': ' in one line, which must be in quotes, or a line above without "
    "':' after its key, or this line is further in than one with a value",
    "find expected ':'": "a key without a ':' after it, or a line of a text that is indented too little",
    **dict.fromkeys(("unexpected end of stream", "document indicator"), _NOT_CLOSED),
    **dict.fromkeys(("',' or ']'", "',' or '}'"), "a ',' between two entries is missing, or a bracket is not closed"),
}


def explain(problem: str, text: str, column: int) -> str:
    """A hint for an error of the parser; empty = none.

    :param problem: what the parser says.
    :param text: the line with the error.
    :param column: where in it, from 0.
    """
    char = text[column : column + 1]
    if char == "\t" or "\t" in text[: len(text) - len(text.lstrip())]:
        return "a tab character is used for indentation; YAML takes only spaces there"
    if "cannot start any token" in problem and char and char in _RESERVED:
        return f"a text that begins with {char!r} must be in quotes"
    return next((hint for words, hint in _HINTS.items() if words in problem), "")
