# SPDX-License-Identifier: Apache-2.0
"""Two builders, four images and two clouds under faults: ``python -m tests.chaos.images``."""
