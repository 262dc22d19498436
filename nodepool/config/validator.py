# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: finds everything that is wrong with a file (reference/configuration 11)."""

from __future__ import annotations

from nodepool.config.assembly import assemble
from nodepool.config.loader import read_documents
from nodepool.config.problems import Problem, Problems


def validate(path: str) -> list[Problem]:
    """Check a file. Reads no secure file and contacts nothing, but imports the drivers that the file names.

    :return: every problem, in the order of the lines; the ``str`` of each is a whole message. Those of the severity
        WARNING are no errors: something is legal but odd, or could not be checked.
    :raises ConfigError: the file cannot be read, is not YAML, or no mapping, so that nothing more can be said.
    """
    problems = Problems()
    main, _ = read_documents(path, None, problems)
    assemble(main, None, problems, validating=True)
    return problems.all()
