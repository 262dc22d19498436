# SPDX-License-Identifier: Apache-2.0
"""What tools/install does: steps that look first, and change only what is not right. The standard library only."""
