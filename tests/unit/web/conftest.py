# SPDX-License-Identifier: Apache-2.0
"""Templates of the pages are compiled once in a process: each test has an application of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jinja2
import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled_templates() -> Iterator[None]:
    by_jinja: Any = jinja2.Environment.compile
    known: dict[tuple[Any, ...], Any] = {}

    def compiled(environment: jinja2.Environment, *arguments: Any) -> Any:
        if arguments not in known:
            known[arguments] = by_jinja(environment, *arguments)
        return known[arguments]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", compiled)
        yield
