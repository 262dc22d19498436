# SPDX-License-Identifier: Apache-2.0
"""Options that choose nodes and requests: ``--state``, ``--label``, ``--provider``, ``--pool``, ``--tenant``,
``--older-than`` (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from nodepool.cmd.durations import duration
from nodepool.listing.nodes import Filter, names_in, states_in


def add_filter_options(parser: argparse.ArgumentParser, states: Sequence[str], *, pools: bool, age: str) -> None:
    """Give a command the options.

    :param states: those that there are.
    :param pools: are there pools to choose?
    :param age: since when ``--older-than`` counts, for the help text.
    """
    group = parser.add_argument_group("what is shown", "names may be patterns; several are divided by commas")
    group.add_argument(
        "--state", metavar="A,B", type=_states(states), default=[], help=f"in one of these states: {', '.join(states)}"
    )
    group.add_argument("--label", metavar="A,B", type=names_in, default=[], help="with one of these labels, e.g. gpu-*")
    group.add_argument("--provider", metavar="A,B", type=names_in, default=[], help="of these providers")
    if pools:
        group.add_argument(
            "--pool", metavar="A,B", type=names_in, default=[], help="of these pools: POOL or PROVIDER/POOL"
        )
    group.add_argument("--tenant", metavar="A,B", type=names_in, default=[], help="of these tenants")
    group.add_argument("--older-than", metavar="TIME", type=duration, help=f"{age} for longer, e.g. 90s, 15m, 1h30m")


def filter_of(options: argparse.Namespace) -> Filter:
    """What the options choose."""
    pools = getattr(options, "pool", [])
    return Filter(options.state, options.label, options.provider, pools, options.tenant, options.older_than)


def _states(known: Sequence[str]) -> Callable[[str], list[str]]:
    def states(text: str) -> list[str]:
        try:
            return states_in(text, known)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return states
