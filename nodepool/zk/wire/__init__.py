# SPDX-License-Identifier: Apache-2.0
"""All that touches the inside of Kazoo."""
