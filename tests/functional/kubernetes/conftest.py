# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on a real control plane; ``tools/functional-kubernetes`` says where it comes from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kubernetes_rig import KubernetesRig, NoRig


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesRig]:
    """A control plane for all tests."""
    started = KubernetesRig(tmp_path_factory.mktemp("kubernetes") / "rig")
    try:
        started.start()
    except NoRig as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()
