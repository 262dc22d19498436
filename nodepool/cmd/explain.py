# SPDX-License-Identifier: Apache-2.0
"""``nodepool explain``: why a request waits, a node is held, a label is not served (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.cmd.app import CommandError
from nodepool.cmd.observation import observe
from nodepool.cmd.session import open_zookeeper

if TYPE_CHECKING:
    from nodepool.plan.explained import Explained
    from nodepool.plan.observed import Observed

_EXAMPLES: Final = """\
examples:
  nodepool explain 200-0000000123    why a request waits or failed, and what would help
  nodepool explain 0000000042        for whom a node is, and what is done with it
  nodepool explain debian-large      who serves a label
  nodepool explain cloud-1           how a provider is; cloud-1/main for one pool of it
"""


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "explain",
        help="tell why a request waits, a node is held, a label is not served or a provider does not work",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="REQUEST|NODE|LABEL|PROVIDER", help="id or name of what to explain")
    parser.add_argument(
        *("-o", "--format"), choices=("table", "json"), default="table", help="how to print it (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """``nodepool explain``"""
    from nodepool.plan import explain

    name = options.name
    with open_zookeeper(options) as zk:
        seen = observe(zk, name)
    kind = explain.kind_of(name, seen)
    if kind is None:
        near = explain.similar(name, seen) or "; nodepool request-list, list and label-list show what there is"
        raise CommandError(f"there is no request, node, label or provider {name!r}{near}")
    _print(explain.explain(name, kind, seen), seen, options.format)
    return 0


def _print(answer: Explained, seen: Observed, form: str) -> None:
    if form == "json":
        import json

        print(json.dumps(answer.to_dict()))
    else:
        from nodepool.listing.explanation import explanation_text

        print(explanation_text(answer, seen.now))
