# SPDX-License-Identifier: Apache-2.0
"""What simulated clouds have in common."""
