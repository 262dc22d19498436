# SPDX-License-Identifier: Apache-2.0
"""Entry for tools that still call setup.py; everything is declared in setup.cfg and pyproject.toml."""

from setuptools import setup

setup()
