# SPDX-License-Identifier: Apache-2.0
"""How errors of work with images get into the log: the text of those that explain themselves, else all of it."""

from __future__ import annotations

import logging

from nodepool.exceptions import BuilderError
from nodepool.plan.failures import meaning


def tell_error(log: logging.Logger, error: BaseException, text: str, *args: object) -> None:
    """Log an error behind a text.

    :param args: of the text.
    """
    if isinstance(error, BuilderError) or meaning(error).expected:
        log.error("%s: %s: %s", text % args, type(error).__name__, error)
    else:
        log.error(text, *args, exc_info=error)
