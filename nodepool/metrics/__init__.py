# SPDX-License-Identifier: Apache-2.0
"""Metrics: declared in `catalog`, kept in a `registry` in process, passed on by sinks such as statsd."""
