# SPDX-License-Identifier: Apache-2.0
"""A module of 11.0.0 that drivers written for it import: `nodepool.compat.modules`."""

from nodepool.compat.modules import ITERATE_INTERVAL, Attributes, Timer, iterate_timeout, nodescan, set_node_ip

__all__ = ["ITERATE_INTERVAL", "Attributes", "Timer", "iterate_timeout", "nodescan", "set_node_ip"]
