# SPDX-License-Identifier: Apache-2.0
"""The name under which `nodepool.testing.simulator.http_server` was known before."""

from __future__ import annotations

from nodepool.testing.simulator.http_server import Application, HttpServer

__all__ = ["Application", "HttpServer"]
