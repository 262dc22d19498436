# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the drivers of Kubernetes and OpenShift."""

from __future__ import annotations

from tests.support.kubernetes_fixtures import cluster, driver, kubeconfig, place, simulator

__all__ = ["cluster", "driver", "kubeconfig", "place", "simulator"]
