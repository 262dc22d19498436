# SPDX-License-Identifier: Apache-2.0
"""YAML files to validated objects (reference/configuration)."""
