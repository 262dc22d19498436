# SPDX-License-Identifier: Apache-2.0
"""The check of the HTML of the documentation finds what it looks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from doc import check_html

SOURCE = Path(__file__).parents[3] / "doc" / "source"


def site(place: Path, *, terms: dict[str, Any], page: str = "") -> Path:
    names = sorted(set(check_html.SEARCHES.values()))
    (place / "searchindex.js").write_text(
        f"Search.setIndex({json.dumps({'docnames': names, 'terms': terms, 'titleterms': {}})})"
    )
    (place / "index.html").write_text(page)
    return place


def good_terms() -> dict[str, Any]:
    names = sorted(set(check_html.SEARCHES.values()))
    return {term: names.index(page) for term, page in check_html.SEARCHES.items()}


def test_a_good_site(tmp_path: Path) -> None:
    page = (
        '<script src="_static/a.js"></script><link rel="stylesheet" href="_static/a.css"><a href="https://zuul-ci.org">'
    )
    assert check_html.main([str(site(tmp_path, terms=good_terms(), page=page))]) == 0


def test_what_is_wrong_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    terms = {**good_terms(), "drain": []}
    page = '<script src="https://cdn.example.org/a.js"></script>'
    assert check_html.main([str(site(tmp_path, terms=terms, page=page))]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "a search for drain does not find how-to/drain",
        "index.html loads https://cdn.example.org/a.js",
    ]


def test_pages_exist() -> None:
    assert all((SOURCE / f"{page}.rst").exists() for page in check_html.SEARCHES.values())
