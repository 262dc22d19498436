# SPDX-License-Identifier: Apache-2.0
"""Commands about configuration files (reference/commands 2).

First ``nodepool config-validate``, which finds every problem of a file, then ``config-diff``, which shows what a reload
would do.
"""

from __future__ import annotations

import argparse
import json
import linecache
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool import log_names
from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.session import open_zookeeper, quiet
from nodepool.exceptions import ConfigError

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.plan.config_diff import Effect, ServedConfig

log = logging.getLogger(log_names.CONFIG_VALIDATOR)


def do_config_validate(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one line a problem; returns 1 if there is an error among them."""
    from nodepool.config.validator import validate_here
    from nodepool.listing import problems as forms

    problems = validate_here(options.config, options.secure)
    errors = sum(map(forms.is_error, problems))
    last = _summary(options.config, errors, len(problems) - errors)
    if options.format == "json":
        print(forms.as_json(problems))
    elif options.format == "github":
        for problem in problems:
            print(forms.as_github(problem))
    elif options.logconfig or options.debug:
        # The options say where lines go, and how they look.
        for problem in problems:
            log.log(logging.ERROR if forms.is_error(problem) else logging.WARNING, "%s", problem)
        log.log(logging.ERROR if errors else logging.INFO, "%s", last)
    else:
        terminal, colour = sys.stderr.isatty(), not os.environ.get("NO_COLOR")
        for problem in problems:
            text = forms.as_frame(problem, linecache.getline, colour=colour) if terminal else forms.as_text(problem)
            print(text, file=sys.stderr)
        print(last, file=sys.stderr)
    return 1 if errors else 0


def _summary(path: str, errors: int, warnings: int) -> str:
    """The last line."""
    also = f"{warnings} warning{'s' * (warnings != 1)}" if warnings else ""
    if errors:
        return f"{path}: {errors} problem{'s' * (errors != 1)} found{also and f', and {also}'}"
    return f"{path} is valid{also and f', with {also}'}"


# ``nodepool config-diff``: what a reload would do, and who has loaded the file (reference/commands 2).


def do_config_diff(options: argparse.Namespace) -> int:
    """``nodepool config-diff``; returns 1 if something of the new file would be refused, or is not served.

    :raises CommandError: a file is refused as a whole.
    """
    from nodepool.driver.framework.sections import UnavailableProviderConfig
    from nodepool.plan.config_diff import reload_effects
    from nodepool.runtime.reload import keep_usable

    files = [path for path in (options.first, options.second) if path is not None]
    if not files:
        return _show_served(options)
    old_path, new_path = [options.config, *files][-2:]
    old = _load(old_path, options.secure, "cannot be compared with")
    new = _load(new_path, options.secure, "would be refused, and the running configuration would stay")
    broken = {name: one.reason for name, one in new.providers.items() if isinstance(one, UnavailableProviderConfig)}
    refused = {**broken, **keep_usable(old, new)}
    effects = reload_effects(old, new, refused)
    if options.format == "json":
        print(_as_json(effects))
    for found in effects if options.format == "text" else ():
        print(found.change.text)
        if found.effect:
            print(f"  -> {found.effect}")
    if not effects and options.format == "text":
        print(f"{new_path}: no key has another value")
    return 1 if refused else 0


def _show_served(options: argparse.Namespace) -> int:
    """Which launchers serve the file of ``-c``? Raises CommandError: there is no launcher, or no such file."""
    from nodepool.config.marks import read
    from nodepool.listing.problems import served_line
    from nodepool.plan.attention import Registered
    from nodepool.plan.config_diff import served_configs
    from nodepool.zk import components
    from nodepool.zk.status import read_launchers

    with open_zookeeper(options) as zk:
        digest = read(options.config).digest
        registered = [Registered(entry.hostname, entry.version) for entry in components.read_launchers(zk.client)]
        found = served_configs(digest, read_launchers(zk.client), registered)
    if not found:
        raise CommandError("no launcher is registered: is one running, with the same zookeeper-servers?")
    if options.format == "json":
        print(_as_json(found))
    else:
        print(f"{options.config} is {digest}")
        for served in found:
            print(served_line(served, wall_time()))
    return 0 if all(served.serves for served in found) else 1


def _load(path: str, secure: str | None, what: str) -> Config:
    from nodepool.config.loader import load_config

    try:
        # What is wrong with sections of providers stands beside each change.
        with quiet("nodepool.config"):
            return load_config(path, secure)
    except ConfigError as error:
        raise CommandError(f"{error}\n{path} {what}") from None


def _as_json(answers: Sequence[Effect | ServedConfig]) -> str:
    return json.dumps([found.to_dict() for found in answers], indent=2)
