# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: finds everything that is wrong with a file (config.md 11)."""

from __future__ import annotations

import logging

from nodepool.config.assembly import assemble
from nodepool.config.loader import read_documents
from nodepool.config.problems import Problem, Problems

log = logging.getLogger("nodepool.config.validator")


def validate(path: str) -> list[Problem]:
    """Check a file. Reads no secure file and contacts nothing, but imports the drivers that the file names.

    What cannot be checked, and what is legal but odd, is logged as a warning.

    :return: every problem, in the order of the lines; the ``str`` of each is a whole message.
    :raises ConfigError: the file cannot be read, is not YAML, or no mapping, so that nothing more can be said.
    """
    problems = Problems()
    main, _ = read_documents(path, None, problems)
    assemble(main, None, problems)
    for problem in problems.warnings(strict=True):
        log.warning("%s", problem)
    return problems.errors(strict=True)
