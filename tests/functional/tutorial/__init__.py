# SPDX-License-Identifier: Apache-2.0
"""The tutorial, as a new user follows it. Run by ``tox -e functional-tutorial``."""
