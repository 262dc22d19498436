# SPDX-License-Identifier: Apache-2.0
"""Web pages, API, live events, health and metrics: one ASGI application.

It sees a `nodepool.web.snapshot.WebSnapshot` and never a worker. A launcher runs it, ``nodepool-web`` does without any
driver, and a builder runs the part with its logs.
"""
