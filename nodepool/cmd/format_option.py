# SPDX-License-Identifier: Apache-2.0
"""The option ``--format`` of listing commands (reference/commands 2)."""

from __future__ import annotations

import argparse

from nodepool.listing.table import FORMATS


def add_format_option(parser: argparse.ArgumentParser) -> None:
    """Give a listing command its ``--format``."""
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="how to print the result (default: %(default)s)"
    )
