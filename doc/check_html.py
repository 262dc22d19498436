# SPDX-License-Identifier: Apache-2.0
"""Looks at the HTML that Sphinx made: can it be read and searched without a network?

``python -m doc.check_html DIRECTORY`` prints what is wrong, and exits with 1 then.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

#: What operators search for -> a page that must be among the answers. Sphinx stores the stems of words.
SEARCHES: Final = {
    "quarantin": "how-to/quarantine",
    "certif": "how-to/certificates",
    "kubernet": "drivers/released/index",
    "evict": "reference/glossary",
    "drain": "how-to/drain",
    "circuit": "drivers/state-machine/index",
}
_LOADED: Final = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]+)\"|<link\b[^>]*rel=\"stylesheet\"[^>]*href=\"([^\"]+)\""
)


def problems(html: Path) -> Iterator[str]:
    """What is wrong with the pages below a directory."""
    index = search_index(html)
    names = index["docnames"]
    for term, page in SEARCHES.items():
        found = [index[where].get(term, []) for where in ("terms", "titleterms")]
        answers = {names[number] for part in found for number in (part if isinstance(part, list) else [part])}
        if page not in answers:
            yield f"a search for {term} does not find {page}"
    for path in sorted(html.rglob("*.html")):
        for match in _LOADED.finditer(path.read_text(encoding="utf-8")):
            address = match[1] or match[2]
            if address.startswith(("http:", "https:", "//")):
                yield f"{path.relative_to(html)} loads {address}"


def search_index(html: Path) -> dict[str, Any]:
    """What the search of Sphinx, which runs in the browser, looks into."""
    text = (html / "searchindex.js").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").rstrip(";\n").removesuffix(")"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Prints the problems; returns the exit status."""
    found = list(problems(Path(arguments[0])))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
