# SPDX-License-Identifier: Apache-2.0
"""Model-based tests: properties of the decisions, and a small simulated world around the real launcher."""
