# SPDX-License-Identifier: Apache-2.0
"""The builder with the real diskimage-builder, and with a real cloud. ``tox -e functional-builder`` runs them."""
