# SPDX-License-Identifier: Apache-2.0
"""The name of the distribution is that in nodepool/version.py; all else is declared in setup.cfg and pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

version = Path(__file__).parent / "nodepool" / "version.py"
setup(name=re.findall('^DISTRIBUTION = "(.+)"$', version.read_text(encoding="utf-8"), re.MULTILINE)[0])
