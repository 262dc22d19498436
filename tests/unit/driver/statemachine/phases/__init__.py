# SPDX-License-Identifier: Apache-2.0
"""Tests of the phases of a launch, one by one: no provider, no ZooKeeper, no threads."""
