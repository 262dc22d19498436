# SPDX-License-Identifier: Apache-2.0
"""Pages for people: each file has one subject, and makes values of a snapshot for a template."""
