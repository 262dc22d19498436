# SPDX-License-Identifier: Apache-2.0
"""The simulated project, asked with plain calls, with Google's own client, and held to Google's own description."""
