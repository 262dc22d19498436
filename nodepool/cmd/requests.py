# SPDX-License-Identifier: Apache-2.0
"""``nodepool request-list`` and ``label-list`` (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from nodepool.cmd.format_option import add_format_option, show_listing
from nodepool.listing.requests import label_table, request_table


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("request-list", help="list node requests")
    parser.set_defaults(run=list_requests)
    add_format_option(parser, watch=True)

    parser = add("label-list", help="list the labels that running launchers serve")
    parser.set_defaults(run=list_labels)
    add_format_option(parser, watch=True)


def list_requests(options: argparse.Namespace) -> int:
    """``nodepool request-list``"""
    return show_listing(options, lambda zk: request_table(zk.nodeRequestIterator(cached=False)))


def list_labels(options: argparse.Namespace) -> int:
    """``nodepool label-list``"""
    return show_listing(options, lambda zk: label_table(zk.getRegisteredPools()))
