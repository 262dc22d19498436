# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-diff``: what a reload would do, and who has loaded the file (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError, absolute_path
from nodepool.cmd.session import open_zookeeper, quiet
from nodepool.exceptions import ConfigError

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.plan.config_diff import Effect, ServedConfig


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "config-diff",
        help="what a reload of a changed configuration would do, and which launchers have loaded the file",
        description="Compares two configuration files as a daemon does when its file changes: what has another value, "
        "which providers are started, stopped or started anew, what is refused, and what needs a restart. Nothing is "
        "contacted. Exit status 1 if the new file, or a section of it, would be refused. Without NEW: asks ZooKeeper "
        "which running launchers serve the file of -c as it stands. Exit status 1 if one does not.",
        epilog="Example: nodepool -c /etc/nodepool/nodepool.yaml config-diff new.yaml",
        usage="%(prog)s [OPTIONS] [[OLD] NEW]",
    )
    parser.add_argument(
        *("files",),
        metavar="FILE",
        nargs="*",
        action=_TwoFiles,
        type=absolute_path,
        help="the file in effect (default: that of -c), and the changed file",
    )
    parser.add_argument(
        *("-o", "--format"),
        choices=("text", "json"),
        default="text",
        help="how to print the result (default: %(default)s)",
    )
    parser.set_defaults(run=show_difference)


class _TwoFiles(argparse.Action):
    """No more than two files."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if len(values) > 2:
            parser.error(f"{len(values)} files are given, two can be compared")
        setattr(namespace, self.dest, values)


def show_difference(options: argparse.Namespace) -> int:
    """``nodepool config-diff``; returns 1 if something of the new file would be refused, or is not served.

    :raises CommandError: a file is refused as a whole.
    """
    from nodepool.plan.config_diff import reload_effects
    from nodepool.runtime.reload import keep_usable

    if not options.files:
        return _show_served(options)
    old_path, new_path = [options.config, *options.files][-2:]
    old = _load(old_path, options.secure, "cannot be compared with")
    new = _load(new_path, options.secure, "would be refused, and the running configuration would stay")
    refused = {**_unusable(new), **keep_usable(old, new)}
    effects = reload_effects(old, new, refused)
    print(_as_json(effects) if options.format == "json" else _as_text(effects, new_path))
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


def _as_json(answers: Sequence[Effect | ServedConfig]) -> str:
    import json

    return json.dumps([found.to_dict() for found in answers], indent=2)
