# SPDX-License-Identifier: Apache-2.0
"""Pages for people: each makes values of a snapshot for a template."""
