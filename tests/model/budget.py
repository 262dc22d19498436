# SPDX-License-Identifier: Apache-2.0
"""How many examples a test tries."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def budget(examples: int) -> settings:
    """So many in the default profile, always the same ones; in proportion in another profile, and each time others."""
    factor = settings.default.max_examples / 100 if settings.default is not None else 1.0
    return settings(
        max_examples=max(1, int(examples * factor)),
        derandomize=factor == 1,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
