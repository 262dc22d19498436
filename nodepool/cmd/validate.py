# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: every problem of the configuration file (cli.md 2)."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable

from nodepool.exceptions import ConfigError

log = logging.getLogger("nodepool.cmd.config_validator")


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("config-validate", help="check the configuration file")
    parser.set_defaults(run=validate_config)


def validate_config(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one log line a problem; returns 1 if there is one."""
    from nodepool.config.validator import validate

    log.info("validating %s", options.config)
    try:
        problems = [str(problem) for problem in validate(options.config)]
    except ConfigError as error:
        # Nothing can be said about the content.
        problems = str(error).splitlines()
    for problem in problems:
        log.error("%s", problem)
    if problems:
        log.error("%s: %d problem%s found", options.config, len(problems), "" if len(problems) == 1 else "s")
        return 1
    log.info("%s is valid", options.config)
    return 0
