# SPDX-License-Identifier: Apache-2.0
"""Spans of requests, launches, builds and uploads for OpenTelemetry. Without configuration nothing is done."""
