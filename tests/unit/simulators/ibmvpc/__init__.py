# SPDX-License-Identifier: Apache-2.0
"""The simulated region, held to IBM's own client and to answers that users published."""
