# SPDX-License-Identifier: Apache-2.0
"""Tests against real clouds. Not in the default environments; see the tox environments ``functional-*``."""
