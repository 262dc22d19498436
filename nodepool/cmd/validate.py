# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: every problem of the configuration file (reference/commands 2)."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable

from nodepool import log_names
from nodepool.exceptions import ConfigError

log = logging.getLogger(log_names.CONFIG_VALIDATOR)


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("config-validate", help="check the configuration file")
    parser.set_defaults(run=validate_config)


def validate_config(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one log line a problem; returns 1 if there is an error among them."""
    from nodepool.config.problems import Severity
    from nodepool.config.validator import validate

    log.info("validating %s", options.config)
    errors = 0
    try:
        for problem in validate(options.config):
            harmless = problem.severity is Severity.WARNING
            log.log(logging.WARNING if harmless else logging.ERROR, "%s", problem)
            errors += not harmless
    except ConfigError as error:
        # Nothing can be said about the content.
        for line in str(error).splitlines():
            log.error("%s", line)
            errors += 1
    if errors:
        log.error("%s: %d problem%s found", options.config, errors, "" if errors == 1 else "s")
        return 1
    log.info("%s is valid", options.config)
    return 0
