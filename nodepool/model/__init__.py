# SPDX-License-Identifier: Apache-2.0
"""Pure data: states, records and quota. Standard library only, no clock, no I/O."""
