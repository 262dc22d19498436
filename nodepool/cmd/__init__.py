# SPDX-License-Identifier: Apache-2.0
"""The three programs: arguments, output, daemons and signals (reference/commands)."""
