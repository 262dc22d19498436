# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/demo that take a minute. ``tox -e functional-demo`` runs them."""
