# SPDX-License-Identifier: Apache-2.0
"""The simulated project, held to Google's own description."""
