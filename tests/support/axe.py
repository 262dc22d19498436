# SPDX-License-Identifier: Apache-2.0
"""axe-core: what keeps people from using a page, as far as a program can tell."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page


def load_axe(page: Page) -> None:
    """Load axe-core, which comes with the package, into the document that is shown."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))


def violations(page: Page, *rules: str) -> list[str]:
    """One line for each violation in the document; see `load_axe`. Blocks.

    :param rules: look for violations of these alone, e.g. ``color-contrast``.
    """
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found: dict[str, Any] = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{rule['id']}: {rule['help']}: {' '.join(map(str, node['target']))}: {node.get('failureSummary', '')}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
