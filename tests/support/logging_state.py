# SPDX-License-Identifier: Apache-2.0
"""What a configuration of logging changes, put back: commands and daemons configure it for their process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


def _loggers() -> list[logging.Logger]:
    named = [log for log in list(logging.root.manager.loggerDict.values()) if isinstance(log, logging.Logger)]
    return [logging.root, *named]


@contextmanager
def kept_logging() -> Iterator[None]:
    """Puts back handlers and levels of all loggers at the end."""
    before = {log: (log.level, list(log.handlers), log.propagate, log.disabled) for log in _loggers()}
    try:
        yield
    finally:
        for log in _loggers():
            level, handlers, log.propagate, log.disabled = before.get(log, (logging.NOTSET, [], True, False))
            for handler in log.handlers:
                if handler not in handlers:
                    handler.close()
            log.handlers = handlers
            # Last: it also forgets what loggers remember of levels.
            log.setLevel(level)
