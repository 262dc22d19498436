# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: every problem of the configuration file (cli.md 2)."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable

log = logging.getLogger("nodepool.cmd.config_validator")


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("config-validate", help="check the configuration file")
    parser.set_defaults(run=validate_config)


def validate_config(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one log line a problem; returns 1 if there is an error."""
    from nodepool.config.problems import Severity
    from nodepool.config.validator import validate

    log.info("validating %s", options.config)
    errors = 0
    for problem in validate(options.config):
        if problem.severity is Severity.WARNING:
            log.warning("%s", problem)
        else:
            errors += 1
            log.error("%s", problem)
    if errors:
        log.error("%s: %d problem%s found", options.config, errors, "" if errors == 1 else "s")
        return 1
    log.info("%s is valid", options.config)
    return 0
