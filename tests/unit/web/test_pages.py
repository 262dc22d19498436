# SPDX-License-Identifier: Apache-2.0
"""The pages: what holds for each of them, what they lead to, and what lists show."""

from __future__ import annotations

import html
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest

from nodepool.listing.overview import overview
from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.status import HostStatus
from nodepool.plan.attention import registered_launchers
from nodepool.plan.explain import explain_request
from nodepool.plan.observed import Observed
from nodepool.web.answers import KEPT_SECONDS, MAX_TEXT, MOST_ANSWERS, MOST_BYTES, KeptAnswers, shown_text
from nodepool.web.app import MOST_SLOTS, SECURITY_HEADERS
from nodepool.web.frame import NAVIGATION, log_commands
from nodepool.web.history import History
from nodepool.web.overview import MOST_ROWS
from nodepool.web.snapshot import WebSnapshot
from tests.support import observed
from tests.support.manual_clock import ManualClock
from tests.support.tables import rows
from tests.support.web_crawl import crawl
from tests.support.web_records import HOSTILE, NOW, full, kept, many
from tests.support.web_site import WebSite
from tests.unit.web.rig import PART

LISTS = [f"/{path}" for path, _ in NAVIGATION]
REQUEST, NODE = "200-0000000001", "0000000001"
ZUUL = "https://zuul.example.org"
#: What only pages with markup of other programs, or with scripts in them, would have.
FORBIDDEN = re.compile(
    r"<script>alert|[\x1b\u202e]|<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|javascript:"
    r'|(?:src|href|action|hx-get|data-stream)="(?:https?:|/)'
)


def page(address: str, snapshot: WebSnapshot | None = None, status: int = 200, **settings: Any) -> str:
    answer = WebSite(snapshot or full(), **settings).client.get(address)
    assert answer.status_code == status, address
    return answer.text


def unclosed(text: str) -> list[str]:
    """Elements that end nowhere, or in another one. Texts and attributes have no ``>``."""
    found: list[str] = []
    for end, tag in re.findall(r"<(/?)(?!(?:meta|link|input|br|hr|img)\b)([a-z][a-z0-9]*)\b[^>]*>", text):
        if not end:
            found.append(tag)
        elif found.pop() != tag:
            return [tag]
    return found


@pytest.mark.parametrize("mark", [None, "", HOSTILE], ids=["empty", "full", "hostile"])
def test_every_page(mark: str | None) -> None:
    """WP-40, WP-43, WP-44: links lead somewhere, also below a prefix; texts of other programs are texts."""
    site = WebSite(None if mark is None else full(mark))
    found = crawl(site.client)
    for address, answer in found.items():
        assert answer.status_code == 200, address
        if answer.headers["content-type"].startswith("text/html"):
            ids = re.findall(r'\sid="([^"]*)"', answer.text)
            assert (unclosed(answer.text), len(ids)) == ([], len(set(ids))), address
            assert FORBIDDEN.findall(answer.text) == [], address
        elif address.startswith("/static/"):
            assert "immutable" in answer.headers["cache-control"], address
    assert sum(address.startswith("/static/") for address in found) >= 4
    if mark == "":
        pages = f"/requests/{REQUEST} /nodes/{NODE} /providers/cloud-1 /labels/gpu /images/debian"
        assert set(pages.split()) <= set(found)
    for address in LISTS:
        text = found[address].text
        assert re.findall(r'<a href="./([^"]*)" aria-current="page">', text) == [address[1:]]
        assert mark is not None or re.search(r"No |no ", text.partition("<main")[2]), address


@rows(__file__, "test_odd_addresses")
def test_odd_addresses(query: str, status: int) -> None:
    """WP-44"""
    for address in LISTS if status == 200 else ["/nodes"]:
        text = page(f"{address}?{query}", status=status)
        assert "<b>" not in text
        assert ('role="alert"' in text) == (status == 400)
    assert WebSite(full()).client.get("/events?since=soon").status_code == 400


def test_wrong_filter_stays_in_its_field() -> None:
    """WP-44: it is marked, with what is allowed; other fields keep what they have."""
    for address, name in (("/nodes?older_than=10+min&label=gpu", "older_than"), ("/events?since=soon&q=gpu", "since")):
        text = page(address, status=400)
        assert re.findall(r'id="filter-(\w+)"[^>]* aria-invalid="true" aria-describedby="error"', text) == [name]
        assert 'value="gpu"' in text
        assert re.search(r'id="error"[^>]*>[^<]*is no duration; write e.g. 90s', text)
    text = page("/nodes?state=redy", status=400)
    assert '<select name="state" aria-invalid="true"' in text
    assert "<option selected>redy</option>" in text


@pytest.mark.parametrize("kind", ["requests", "nodes", "providers", "labels", "images"])
def test_unknown_name(kind: str) -> None:
    """WP-41, WP-44: who opens it a moment too early sees it when it comes, because it follows a kind of records."""
    text = page(f"/{kind}/%3Cb%3Enothing%3C%2Fb%3E", status=404)
    assert "&lt;b&gt;nothing&lt;/b&gt;" in text
    assert re.search(r'id="live" hx-get="', text)


@rows(__file__, "test_search")
def test_search(text: str, found: list[str]) -> None:
    """WP-104: one record leads to its page, of several there is a list; a text that nothing has stays in its field."""
    answer = WebSite(full()).client.get("/search", params={"q": text})
    if answer.status_code == 303:
        assert [answer.headers["location"]] == found
        return
    assert first_cells(answer.text) == found
    assert f' name="q" value="{html.escape(text)}"' in answer.text
    assert ("No record has" in answer.text) == (not found)


@rows(__file__, "test_address_of_no_page")
def test_address_of_no_page(path: str, accept: str, kind: str, words: str) -> None:
    """WP-44: a browser gets a page of the site with the reason, a program a text, or a problem below ``/api``."""
    answer = WebSite(full()).client.get(path, headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (404, kind)
    assert words in answer.text
    assert ("<nav" in answer.text, "hx-get" in answer.text) == (kind == "text/html", False)


def test_much_is_bounded() -> None:
    """WP-43"""
    for address in ("/nodes", "/requests", "/labels", "/"):
        assert page(address, many(3000)).count("<tr>") <= 101
    requests = {one.key: one for one in (observed.request(number, f"label-{number}") for number in range(200))}
    statuses = [observed.status(f"cloud-{number}") for number in range(200)]
    text = page("/", replace(full(), observed=replace(full().observed, requests=requests, statuses=statuses)))
    assert text.count('<li><a href="./requests?label=') == MOST_ROWS
    assert f"{200 - MOST_ROWS} more" in text
    request = observed.request(1)
    request.nodes = [f"{number:010}" for number in range(100)]
    text = page("/requests", replace(full(), observed=replace(SEEN, requests={request.key: request})))
    assert 1 < text.count("00000000") < 50
    assert re.search(r"\d+ more</td>", text)
    status = observed.status("lab", driver="static", hosts=[HostStatus("zuul@big:22", True, slots=10**9)])
    text = page("/hosts", replace(full(), observed=replace(full().observed, statuses=[status])))
    assert text.count('<i class="s-free" title="no node: free">') == MOST_SLOTS
    assert shown_text("a\x1b[31mb\nc\u202ed\0") == "a [31mb\nc d "
    assert [len(shown_text("x" * length)) for length in (MAX_TEXT, MAX_TEXT + 1)] == [MAX_TEXT, MAX_TEXT + 3]


def test_live_part() -> None:
    """WP-40, WP-41: the part of a page that changes comes alone, made once for all viewers; caches keep both apart."""
    site = WebSite(full())
    whole, part = site.client.get("/"), site.client.get("/", headers=PART)
    assert whole.text.startswith("<!DOCTYPE html>")
    assert part.text.startswith('<div id="live"')
    assert part.text.rstrip().endswith("</div>")
    assert part.text.strip() in whole.text
    for answer in (whole, part):
        assert (answer.headers["vary"], answer.headers["cache-control"]) == ("HX-Request", "no-cache")
    snapshot = site.snapshots.snapshot
    later = replace(snapshot.observed, now=snapshot.observed.now + 3600)
    site.snapshots.snapshot = replace(snapshot, observed=later)
    kept = site.client.get("/", headers=PART)
    assert (kept.content, dict(kept.headers)) == (part.content, dict(part.headers))
    assert all(kept.headers[name] == value for name, value in SECURITY_HEADERS.items())
    site.snapshots.snapshot = replace(snapshot, number=snapshot.number + 1, observed=later)
    assert site.client.get("/", headers=PART).content != part.content


def test_page_names_its_stream() -> None:
    """WP-50: with its own address. What a user types stays."""
    client = WebSite(full()).client
    for address in LISTS:
        assert f"events/stream?page={address[1:]}%3Fsort%3Dx" in client.get(f"{address}?sort=x").text
        assert "<form" not in client.get(address, headers=PART).text
    assert "ZooKeeper is away" not in page("/"), "WP-41"
    assert "ZooKeeper is away" in page("/", replace(full(), complete=False))


SEEN = full().observed


@rows(__file__, "test_what_pages_show")
def test_what_pages_show(address: str, links: str, texts: list[str]) -> None:
    """WP-42, WP-46, WP-47: links within the site, and to Zuul and builders where their addresses are known."""
    text = page(address, zuul_url=f"{ZUUL}/", builder_url="https://{}:8006")
    found = {
        html.unescape(one).removeprefix("./").removeprefix("../") for one in re.findall(r'<a href="([^"]*)"', text)
    }
    assert set(links.split()) <= found
    for one in texts:
        assert one in text
    assert "https://" not in page(address)


def test_answers_of_commands() -> None:
    """WP-42, WP-46: pages have the sentence of ``nodepool status``, and the answer of ``explain`` with its remedies."""
    status = overview(SEEN, registered_launchers(SEEN.registered))
    answer, text = explain_request(SEEN.requests[REQUEST], SEEN), page(f"/requests/{REQUEST}")
    assert f'aria-live="polite">{html.escape(status.sentence)}<' in page("/")
    plain = html.unescape(re.sub(r"</?(?:a|code|button)\b[^>]*>", "", text))
    assert f'aria-live="polite">Request {answer.id} {answer.text}</p>' in plain
    for one in (*answer.remedies, *(part for pool in answer.pools for part in (pool.pool, pool.verdict, pool.text))):
        assert f">{one}<" in plain
    assert "All is well." in page("/", WebSnapshot(0, Observed(NOW, registered=[observed.component("cloud-1", "gpu")])))


def test_links_in_sentences() -> None:
    """WP-105: what a sentence names leads to its page if there is one; a command is a link, or can be copied."""
    text = page(f"/requests/{REQUEST}")
    assert f'node <a href="../nodes/{NODE}">{NODE}</a> is in use' in text
    assert f'<a href="../nodes/{NODE}">nodepool explain {NODE}</a> shows by whom' in text
    assert '<code>nodepool delete 0000000002</code><button type="button" class="copy" data-copy="nodepool' in text
    assert 'label <a href="../labels/broken">broken</a> of <a href="../providers/cloud-1">cloud-1/main' in page(
        "/providers/cloud-1"
    )


def test_events_of_a_provider() -> None:
    """WP-105: its failures are failures, the history has the rest; an image leads to its page."""
    began = Event(NOW - 20, "l1", "provider cloud-1", "maintenance began", text="paused by alice")
    away = Event(NOW - 10, "l1", "provider cloud-1", "unavailable", text="HTTP 503")
    image = Event(NOW - 5, "l1", "image debian", "available")
    snapshot = replace(full(), observed=replace(SEEN, events=[began, away, image]))
    table = page("/providers/cloud-1", snapshot).partition("<h2>Failures</h2>")[2].partition("</table>")[0]
    assert "HTTP 503" in table
    assert "paused by alice" not in table
    assert '<a href="./images/debian">image debian</a>' in page("/events", snapshot)


def test_cells() -> None:
    """WP-105: a state has its colour, a number stands right, an age has the moment with its zone, equal names once."""
    request = observed.request(1, "virtual", "virtual", "gpu")
    text = page("/requests", replace(full(), observed=replace(SEEN, requests={request.key: request})))
    assert '<td class="state waiting s-requested" data-label="State">requested</td>' in text
    assert '>2 x virtual</a>, <a href="./labels/gpu">gpu</a></td>' in text
    assert re.search(r'<td class="[^"]*number"[^>]*>1</td>', page("/providers"))
    assert re.search(r'<time title="20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \w+">15 min</time>', page("/providers"))
    assert re.search(r'<td class="[^"]*age"[^>]*><time title="[^"]+ \w+">1 h 23 min</time>', page("/images/debian"))
    assert re.search(r'<td class="name">20[-\d]+ [:\d]+ \w+</td>', page("/events"))


@rows(__file__, "test_lists")
def test_lists(address: str, expected: list[str]) -> None:
    """WP-45"""
    assert first_cells(page(address)) == expected


def first_cells(text: str) -> list[str]:
    return re.findall(r"<tr>\s*<td[^>]*>(?:<a [^>]*>)?([^<]*)", text)


@rows(__file__, "test_events")
def test_events(query: str, found: list[str]) -> None:
    """WP-45: the newest one comes first."""
    events = [Event(NOW - ago, "l1", name, "held") for ago, name in ((20, "node 1"), (10, "request 1"), (5, "node 2"))]
    text = page(f"/events?{query}", replace(full(), observed=replace(SEEN, events=events)))
    assert re.findall(r">((?:node|request) \d)</td>", text) == found


@rows(__file__, "test_order_and_parts")
def test_order_and_parts(query: str, links: list[str]) -> None:
    """WP-45: a second click turns the order, and filters stay; parts of a list have all rows once."""
    text = page(f"/nodes?{query}", many(25))
    if "page=" in links[0]:
        assert [html.unescape(one) for one in re.findall(r'<a href="([^"]*)" rel="', text)] == links
    else:
        heads = [html.unescape(one) for one in re.findall(r'<th [^>]*><a href="([^"]*)">', text)]
        assert [heads[0], heads[2]] == links
        turned = re.findall(r'aria-sort="(\w+)"', text)
        assert turned == ["descending" if "sort=-" in query else "ascending"]
    found = [node for number in (1, 2, 3) for node in first_cells(page(f"/nodes?page={number}", many(250)))]
    assert found == [f"{number:010}" for number in range(1, 251)]


def test_links_to_zuul() -> None:
    """WP-46: hostile texts stay within them; odd records have fewer."""
    site, path = WebSite(full("/../x?y"), zuul_url=ZUUL), f"/api/v1/requests/{REQUEST}/explain"
    record = site.snapshots.snapshot.observed.requests[REQUEST]
    tenant = f"{ZUUL}/t/t1%2F..%2Fx%3Fy"
    status = {"status": f"{tenant}/status"}
    assert site.client.get(path).json()["links"] == {"buildset": f"{tenant}/buildset/5d0b%2F..%2Fx%3Fy", **status}
    record.requestor_data = ["odd"]
    assert site.client.get(path).json()["links"] == status
    record.tenant_name = None
    assert site.client.get(path).json()["links"] == WebSite(full()).client.get(path).json()["links"] == {}


def test_commands_are_safe_to_paste() -> None:
    """Ids come from other programs."""
    for line in log_commands("node: '; rm -rf / #\"$(x)"):
        assert shlex.split(line)[0] in ("journalctl", "grep")
        assert ";" not in shlex.split(line)
    label = "x nodepool explain $(touch${IFS}/tmp/x|sh)"
    request = observed.request(1, label)
    text = page(f"/requests/{request.key}", replace(full(), observed=replace(SEEN, requests={request.key: request})))
    assert html.escape(label) in text
    assert 'data-copy="nodepool explain' not in text


def test_kept_answers_are_bounded() -> None:
    """By age, number and length of all."""
    clock = ManualClock().rules("time")
    kept = KeptAnswers()
    kept.put("a", b"x")
    assert (bodies(kept, "a"), bodies(kept, "b")) == ([b"x"], [])
    clock.pass_seconds(KEPT_SECONDS)
    assert bodies(kept, "a") == []
    for size, most in ((1, MOST_ANSWERS), (MOST_BYTES // 2, 2)):
        kept = KeptAnswers()
        for number in range(most):
            kept.put(number, bytes(size))
        assert bodies(kept, 0) == [bytes(size)]
        kept.put("one more", b"y")
        assert (bodies(kept, 0), bodies(kept, "one more")) == ([], [b"y"])
    kept.put("large", bytes(MOST_BYTES + 1))
    assert bodies(kept, "large") == []


def bodies(kept: KeptAnswers, key: object) -> list[bytes]:
    answer = kept.get(key)
    return [] if answer is None else [answer.body]


def test_glossary() -> None:
    """Each page leads to it."""
    assert '<a href="./glossary">' in page("/nodes")
    assert "<dt>decline</dt><dd>A pool&#39;s answer that it can never serve a request." in page("/glossary")


def test_records_that_ended() -> None:
    """WP-107: they have lists and pages, with their life, and the search finds them."""
    site = WebSite(full(), history=kept())
    get = site.client.get
    assert 'href="./nodes?ended=yes">Nodes that ended</a>' in get("/nodes").text
    for path, name, result, more in (
        ("nodes", "0000000090", "used", "6 min"),
        ("requests", "200-0000000070", "fulfilled", "1 min"),
    ):
        text = get(f"/{path}?ended=yes&q=GPU").text
        assert first_cells(text) == [name]
        assert f'<a href="./{path}/{name}">{name}</a>' in text
        assert f's-{result}" data-label="Result">{result}</td>' in text
        assert f">{more}</td>" in text
        assert '<input type="hidden" name="ended" value="yes">' in text
        assert first_cells(get(f"/{path}?ended=yes&q=nothing").text) == []
    text = get("/nodes/0000000090").text
    assert "Node 0000000090 ended 0 s ago (used)" in text
    assert '<a href="../requests/200-0000000070">200-0000000070</a>' in text
    bar = dict(re.findall(r'<rect class="s-([\w-]+)" x="\d+" width="(\d+)"', text))
    assert bar == {"created": "0", "building": "231", "ready": "25", "in-use": "693", "used": "51"}
    lasted = dict(re.findall(r'<span class="state s-([\w-]+)">[^<]*</span> <span class="quiet">([^<]*)<', text))
    assert lasted == {
        "created": "for 0 s",
        "building": "for 1 min",
        "ready": "for 10 s",
        "in-use": "for 4 min",
        "used": "for 20 s",
        "deleted": "",
    }
    text = get("/requests/200-0000000070").text
    assert "fulfilled after it had waited 1 min" in text
    assert '<a href="../nodes/0000000090">0000000090</a>' in text
    for word, location in (("192.0.2.90", "./nodes/0000000090"), ("200-70", "./requests/200-0000000070")):
        assert get("/search", params={"q": word}).headers["location"] == location
    # A node in use of a request that Zuul has removed.
    used = WebSnapshot(1, observed.seen(nodes=observed.known(observed.node(92, allocated_to="200-0000000070"))))
    text = page("/nodes", used, history=kept())
    assert '<a href="./requests/200-0000000070">' in text
    assert ">night</td>" in text
    assert get("/nodes/0000000091").status_code == 404
    history, node = History(), observed.node(91)
    history.note("node", node.key, node)
    history.take_notes()
    assert "Node 0000000091 began or ended just now<" in page("/nodes/0000000091", history=history)


def test_node_in_use_whose_request_was_removed() -> None:
    """WP-107: whose job it is stays known, and what it was before."""
    history, node = kept(), observed.node(91, "gpu", state=states.IN_USE)
    node.allocated_to, node.state_time = "200-0000000070", NOW - 50
    history.note("node", node.key, node)
    history.take_notes()
    text = page(f"/nodes/{node.key}", replace(full(), observed=replace(SEEN, nodes={node.key: node})), history=history)
    for name, value in (("Job", "night"), ("Pipeline", "periodic"), ("Project", "org/tool")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert '<a href="../requests/200-0000000070">' in text


def test_hostile_records_that_ended() -> None:
    """WP-43"""
    found = crawl(WebSite(None, history=kept(HOSTILE)).client)
    assert "/nodes/0000000090" in found
    for address in ("/nodes/0000000090", "/requests/200-0000000070", "/nodes?ended=yes", "/requests?ended=yes"):
        assert (unclosed(found[address].text), FORBIDDEN.findall(found[address].text)) == ([], []), address
