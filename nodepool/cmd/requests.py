# SPDX-License-Identifier: Apache-2.0
"""``nodepool request-list`` and ``label-list`` (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from nodepool.cmd.format_option import add_format_option
from nodepool.cmd.session import open_zookeeper
from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import render


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("request-list", help="list node requests")
    parser.set_defaults(run=list_requests)
    add_format_option(parser)

    parser = add("label-list", help="list the labels that running launchers serve")
    parser.set_defaults(run=list_labels)
    add_format_option(parser)


def list_requests(options: argparse.Namespace) -> int:
    """``nodepool request-list``"""
    with open_zookeeper(options) as zk:
        table = request_table(zk.nodeRequestIterator(cached=False))
    print(render(table, options.format))
    return 0


def list_labels(options: argparse.Namespace) -> int:
    """``nodepool label-list``"""
    with open_zookeeper(options) as zk:
        table = label_table(zk.getRegisteredPools())
    print(render(table, options.format))
    return 0
