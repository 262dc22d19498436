# SPDX-License-Identifier: Apache-2.0
"""The programs: arguments, output, daemons and signals (reference/commands)."""
