# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on a real control plane; ``tools/functional-kubernetes`` says where it comes from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kubernetes_rig import KubernetesRig


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesRig]:
    """A control plane for all tests."""
    started = KubernetesRig(tmp_path_factory.mktemp("kubernetes") / "rig")
    started.start()
    yield started
    started.stop()
