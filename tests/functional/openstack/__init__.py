# SPDX-License-Identifier: Apache-2.0
"""A launcher process and the Zuul client on a real OpenStack: ``tox -e functional-openstack``."""
