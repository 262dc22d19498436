# SPDX-License-Identifier: Apache-2.0
"""A launcher process and the Zuul client on a real Kubernetes: ``tox -e functional-kubernetes``."""
