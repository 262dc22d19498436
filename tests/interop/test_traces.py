# SPDX-License-Identifier: Apache-2.0
"""Zuul's own code writes the ids of its trace into a request; the spans of a launcher continue it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.otlp_receiver import http_receiver
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


def test_continues_the_trace_of_zuul(workplace: Workplace, zuul: ZuulClient) -> None:
    """TR-2, S-1: the parent of the request's span is Zuul's; Zuul restores its span from what is stored afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from zuul.lib import tracing

    with http_receiver() as collector:
        settings = {"enabled": True, "protocol": "http/protobuf", "endpoint": collector.endpoint}
        workplace.launch(StaticProvider(static_hosts(1)), extra={"tracing": settings})
        request = zuul.submit_and_wait(["small"])
        stored = workplace.znodes.request(request.id)
        assert stored is not None
        info = stored["requestor_data"]["span_info"]
        wait_for("the span of the request", lambda: collector.named("nodepool.request"))
        (span,) = collector.named("nodepool.request")
        assert info["trace_id"] >= 2**64
        assert (span.trace_id, span.parent_id) == (info["trace_id"], info["span_id"])
        context = tracing.restoreSpan(info).get_span_context()
        assert (context.trace_id, context.span_id) == (span.trace_id, span.parent_id)
        zuul.give_back(zuul.accept(request))
        log = workplace.launchers[0].log_text()
        assert f"[trace: {span.trace_id:032x}]" in log
        workplace.stop()
        assert {one.trace_id for one in collector.named("nodepool.service")} == {span.trace_id}
