# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-diff``: what a reload would do (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodepool.cmd.app import CommandError, absolute_path
from nodepool.cmd.session import quiet
from nodepool.exceptions import ConfigError

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.plan.reload_effect import Effect


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "config-diff",
        help="what a reload of a changed configuration would do",
        description="Compares two configuration files as a daemon does when its file changes: what has another value, "
        "which providers are started, stopped or started anew, what is refused, and what needs a restart. Nothing is "
        "contacted. Exit status 1 if the new file, or a section of it, would be refused.",
        epilog="Example: nodepool -c /etc/nodepool/nodepool.yaml config-diff new.yaml",
    )
    parser.add_argument("old", nargs="?", type=absolute_path, help="the file in effect (default: that of -c)")
    parser.add_argument("new", type=absolute_path, help="the changed file")
    parser.add_argument(
        *("-o", "--format"),
        choices=("text", "json"),
        default="text",
        help="how to print the result (default: %(default)s)",
    )
    parser.set_defaults(run=show_difference)


def show_difference(options: argparse.Namespace) -> int:
    """``nodepool config-diff``; returns 1 if something of the new file would be refused.

    :raises CommandError: a file is refused as a whole.
    """
    from nodepool.plan.reload_effect import reload_effects
    from nodepool.runtime.reload import keep_usable

    old = _load(options.old or options.config, options.secure, "cannot be compared with")
    new = _load(options.new, options.secure, "would be refused, and the running configuration would stay")
    refused = {**_unusable(new), **keep_usable(old, new)}
    effects = reload_effects(old, new, refused)
    print(_as_json(effects) if options.format == "json" else _as_text(effects, options.new))
    return 1 if refused else 0


def _load(path: str, secure: str | None, what: str) -> Config:
    from nodepool.config.loader import load_config

    try:
        # What is wrong with sections of providers is said of each change.
        with quiet("nodepool.config"):
            return load_config(path, secure)
    except ConfigError as error:
        raise CommandError(f"{error}\n{path} {what}") from None


def _unusable(config: Config) -> Mapping[str, str]:
    from nodepool.driver.framework.unavailable import UnavailableProviderConfig

    providers = config.providers.items()
    return {name: found.reason for name, found in providers if isinstance(found, UnavailableProviderConfig)}


def _as_text(effects: Sequence[Effect], path: str) -> str:
    if not effects:
        return f"{path}: no key has another value"
    lines = []
    for found in effects:
        lines.append(found.change.text)
        if found.effect:
            lines.append(f"  -> {found.effect}")
    return "\n".join(lines)


def _as_json(effects: Sequence[Effect]) -> str:
    import json

    return json.dumps([found.to_dict() for found in effects], indent=2)
