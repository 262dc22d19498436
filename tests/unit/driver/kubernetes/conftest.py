# SPDX-License-Identifier: Apache-2.0
"""Fixtures of a simulated cluster."""

from __future__ import annotations

from tests.support.kubernetes_fixtures import kubeconfig, simulator

__all__ = ["kubeconfig", "simulator"]
