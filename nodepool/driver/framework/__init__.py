# SPDX-License-Identifier: Apache-2.0
"""Machinery that drivers share. Authors of drivers import from `nodepool.driver` and `nodepool.driver.utils`."""
