# SPDX-License-Identifier: Apache-2.0
"""Logging: configuration files, formatters, and records that carry the ids of what they are about.

The contract is reference/commands 7. This module is a leaf: any layer may import it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from nodepool import log_names
from nodepool.clock import utc_text

_Adapter = logging.LoggerAdapter[logging.Logger]

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

#: (record attribute, short name in the text prefix), in the order of the prefix.
_CONTEXT_FIELDS: Final = (("event_id", "e"), ("node_request", "node_request"), ("node", "node"), ("trace_id", "trace"))

#: Longest id in the text prefix: ids come from other programs, and stand in every line of a request.
_MAX_ID: Final = 200

#: What terminals and log viewers act on (line breaks but ``\n``, escape sequences, changes of the writing direction),
#: and what no file in UTF-8 can have. Texts of hosts, clouds and other programs get into messages.
_ACTIVE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

#: What every record has; anything else was given as ``extra`` and belongs into a JSON line.
_STANDARD_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogConfigError(Exception):
    """The logging configuration was refused. The text names the file and what is wrong, in one line."""


class AnnotatedLogger(_Adapter):
    """A logger that says which event, request and node each message is about.

    Messages get the prefix ``[e: ..] [node_request: ..] [node: ..] [trace: ..]`` and records the attributes
    ``event_id``, ``node_request``, ``node`` and ``trace_id``. Nothing is computed for a level that is off.
    """

    def __init__(self, logger: logging.Logger, fields: dict[str, str]) -> None:
        super().__init__(logger, fields)
        self.fields = fields
        self._prefix: str | None = None

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Called by `logging` once a message is known to be wanted."""
        if not self.fields:
            return msg, kwargs
        if self._prefix is None:
            self._prefix = _prefix(self.fields)
        extra = kwargs.get("extra")
        kwargs["extra"] = {**self.fields, **extra} if extra else self.fields
        return f"{self._prefix}{msg}", kwargs


#: Ids of the request that is being judged or served here, for parts that do not know it.
_CURRENT: Final[ContextVar[Mapping[str, str]]] = ContextVar("nodepool_log_ids", default=MappingProxyType({}))


class ContextLogger(AnnotatedLogger):
    """The logger of a part that is used for many requests, such as the quota of a provider.

    Messages carry the ids of the request for which the part is used at that moment, see `OnBehalfOf`.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        current = _CURRENT.get()
        if current:
            kwargs["extra"] = {**current, **(kwargs.get("extra") or {})}
        return f"{_prefix(current)}{msg}", kwargs


class OnBehalfOf:
    """Inside, messages of a `ContextLogger` carry the ids of another logger. Only in the same thread.

    :param log: of a request.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, log: AnnotatedLogger) -> None:
        self._fields = log.fields

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._fields)

    def __exit__(self, *_error: object) -> None:
        _CURRENT.reset(self._token)


def get_annotated_logger(
    logger: logging.Logger | _Adapter,
    event_id: str | None = None,
    node_request_id: str | None = None,
    node_id: str | None = None,
    **about: str | None,
) -> AnnotatedLogger:
    """A logger whose messages carry these ids.

    :param logger: where messages go. The ids of an annotated logger are kept; ids given here win.
    :param event_id: id of the Zuul event that caused the work, or None when not known.
    :param node_request_id: znode name of the node request, or None.
    :param node_id: znode name of the node, or None.
    :param about: other attributes of the records, such as ``provider``; None = not known. Of these ``trace_id`` is in
        the prefix, too.
    """
    fields: dict[str, str] = {}
    while isinstance(logger, logging.LoggerAdapter):
        if isinstance(logger, AnnotatedLogger):
            fields = {**logger.fields, **fields}
        logger = logger.logger
    given = {"event_id": event_id, "node_request": node_request_id, "node": node_id, **about}
    fields.update({name: value for name, value in given.items() if value is not None})
    return AnnotatedLogger(logger, fields)


def _prefix(fields: Mapping[str, str]) -> str:
    parts = [f"[{short}: {_harmless(fields[name])}] " for name, short in _CONTEXT_FIELDS if name in fields]
    return "".join(parts)


def _harmless(value: object) -> str:
    """An id as text. Ids come from other programs: no line break and no ``%`` of theirs may act in a message."""
    text = str(value)[:_MAX_ID]
    if text.isprintable() and "%" not in text:
        return text
    return "".join(char if char.isprintable() and char != "%" else "?" for char in text)


def _passive(text: str) -> str:
    """A text in which nothing acts but ``\n``: what would, is written as in Python source."""
    return text if text.isprintable() else _ACTIVE.sub(lambda match: ascii(match[0])[1:-1], text)


class MultiLineFormatter(logging.Formatter):
    """Text lines. Every further line of a message repeats the prefix of the first, plus two blanks.

    So no one whose text gets into a message can make up a line of his own. Control characters are escaped.

    :param short_names: write ``%(name)s`` without host and number of a pool worker. The record keeps its name: levels
        and filters of loggers see no difference.
    """

    def __init__(
        self,
        fmt: str | None = None,
        datefmt: str | None = None,
        style: Any = "%",
        *,
        short_names: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(fmt or FORMAT, datefmt, style, **kwargs)
        self._short_names = short_names

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _passive(record.message)
        name = record.name
        if not self._short_names or not name.endswith("]"):
            return super().formatMessage(record)
        # Other handlers get the same object.
        record.name = log_names.shortened(name)
        try:
            return super().formatMessage(record)
        finally:
            record.name = name

    def formatException(self, ei: Any) -> str:
        return _passive(super().formatException(ei))

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if "\n" not in text:
            return text
        first, *rest = text.split("\n")
        # The prefix is what the format makes of an empty message.
        empty = logging.makeLogRecord({**vars(record), "msg": "", "args": (), "message": ""})
        empty.exc_info = empty.exc_text = empty.stack_info = None
        prefix = self.formatMessage(empty)
        return "\n".join([first, *(f"{prefix}  {line}" for line in rest)])


class JSONFormatter(logging.Formatter):
    """One JSON object a line, for log collectors.

    Keys: ``timestamp`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, ``thread``, ``process``, the ids
    ``event_id``, ``node_request`` and ``node`` when known, ``provider``, ``pool``, ``label`` and ``code`` (of a
    `nodepool.model.reasons.ReasonCode`) when the message is about one, ``exception`` and ``stack`` when there are some,
    and whatever else was given as ``extra``. Use it in a logging configuration with
    ``class: nodepool.logconfig.JSONFormatter``.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json

        seconds, fraction = divmod(record.created, 1)
        line: dict[str, Any] = {
            "timestamp": utc_text(seconds) + f".{int(fraction * 1e6):06d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
            "process": record.process,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD_ATTRIBUTES and name not in line:
                line[name] = value
        for name, value in log_names.place_of(record.name).items():
            line.setdefault(name, value)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str)


def default_config(*, level: str = "INFO", stream: str | None = None, filename: str | None = None) -> dict[str, Any]:
    """The configuration used without ``-l`` (reference/commands 7), as a `logging.config.dictConfig` dictionary.

    :param level: level of the project's own loggers.
    :param stream: ``ext://sys.stdout`` or ``ext://sys.stderr``.
    :param filename: log file instead of a stream. It is opened again after a rotation.
    """
    handler: dict[str, Any] = {"formatter": "lines"}
    if filename is not None:
        handler |= {"class": "logging.handlers.WatchedFileHandler", "filename": filename}
        # A name that is not UTF-8 must not cost us the message.
        handler |= {"encoding": "utf-8", "errors": "backslashreplace"}
    else:
        handler |= {"class": "logging.StreamHandler", "stream": stream or "ext://sys.stdout"}
    quiet = {"handlers": ["output"], "level": "WARNING", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "nodepool.logconfig.MultiLineFormatter", "short_names": True}},
        # Without any handler on the root, logging itself would print the warnings of other libraries.
        "handlers": {"output": handler, "nowhere": {"class": "logging.NullHandler"}},
        "loggers": {
            "nodepool": {"handlers": ["output"], "level": level, "propagate": False},
            # Written only when an operator asks for it with SIGUSR2, so it is never noise.
            log_names.STACK_DUMP: {"level": "DEBUG"},
            "requests": quiet,
            "openstack": quiet,
            "kazoo": quiet,
        },
        "root": {"handlers": ["nowhere"], "level": "WARNING"},
    }


def apply_config(config: dict[str, Any]) -> None:
    """Use a dictConfig dictionary.

    :raises LogConfigError: when it cannot be used, e.g. because the log file cannot be written.
    """
    # Heavy, and most commands do not need it.
    import logging.config

    try:
        logging.config.dictConfig(config)
    except (ValueError, TypeError, KeyError, AttributeError, ImportError, OSError) as error:
        raise LogConfigError(_reason(error)) from error


def load_config(path: str) -> None:
    """Use the logging configuration in a file: ``*.yaml``, ``*.yml``, ``*.json`` or else ini.

    :param path: the file; ``~`` is expanded.
    :raises LogConfigError: the file is missing or cannot be used.
    """
    import logging.config

    file = Path(path).expanduser()
    if not file.is_file():
        raise LogConfigError(f"{file}: there is no such logging configuration file. Check the option -l.")
    try:
        if file.suffix in (".yaml", ".yml", ".json"):
            apply_config(_read_dict(file))
        else:
            logging.config.fileConfig(str(file), disable_existing_loggers=False)
    except LogConfigError as error:
        raise LogConfigError(f"{file}: {error}") from error
    # fileConfig raises whatever the constructors it evaluates raise.
    except Exception as error:
        raise LogConfigError(f"{file}: this logging configuration cannot be used: {_reason(error)}") from error


def _read_dict(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        import json

        data = json.loads(text)
    else:
        import yaml

        data = yaml.safe_load(text)
    if not isinstance(data, dict):
        raise LogConfigError("the file must hold one mapping, as for logging.config.dictConfig")
    return {"disable_existing_loggers": False, **data}


def _reason(error: BaseException) -> str:
    """The innermost cause, in one line; dictConfig hides it behind 'Unable to configure handler'."""
    text = " ".join(str(error).split())
    while error.__cause__ is not None:
        error = error.__cause__
        text = f"{text}: {' '.join(str(error).split())}"
    return text or type(error).__name__
