# SPDX-License-Identifier: Apache-2.0
"""Settings of traces (reference/configuration 2): the keys of ``[tracing]`` in ``zuul.conf``."""

from __future__ import annotations

from nodepool.config.marks import Document
from nodepool.config.problems import Problems, Severity
from nodepool.driver.config import ConfigValue
from nodepool.model.config_keys import FILLED_TEXT, FLAG, Text, Whole, key
from nodepool.tracing.otlp import GRPC, HTTP, OtlpSettings, missing_module
from nodepool.version import how_to_install


class TracingSettings(ConfigValue):
    """The keys of ``tracing``."""

    tracing_enabled: bool = key(
        FLAG,
        False,
        "true: spans of requests, launches, builds and uploads are sent to a collector of OpenTelemetry. It needs "
        "the extra ``tracing``.",
        name="tracing.enabled",
    )
    tracing_protocol: str = key(Text(choices=(GRPC, HTTP)), GRPC, "How they are sent.", name="tracing.protocol")
    tracing_endpoint: str | None = key(
        FILLED_TEXT,
        None,
        "Where the collector is: an address for gRPC, such as ``collector.example.org:4317``, or the whole URL for "
        "HTTP, such as ``https://collector.example.org:4318/v1/traces``.",
        name="tracing.endpoint",
        default_text="the usual port on this host",
    )
    tracing_service_name: str = key(
        FILLED_TEXT, "nodepool", "What the spans are from, as the collector shows it.", name="tracing.service_name"
    )
    tracing_tls_cert: str | None = key(
        FILLED_TEXT, None, "File with the certificate for the collector, PEM.", name="tracing.tls_cert"
    )
    tracing_tls_key: str | None = key(
        FILLED_TEXT, None, "File with the private key of that certificate, PEM.", name="tracing.tls_key"
    )
    tracing_tls_ca: str | None = key(
        FILLED_TEXT,
        None,
        "File with the authority of the collector's certificate, PEM.",
        name="tracing.tls_ca",
        default_text="those of the system",
    )
    tracing_certificate_file: str | None = key(
        FILLED_TEXT,
        None,
        "As ``tracing.tls_ca``, which ``zuul.conf`` calls so for HTTP.",
        name="tracing.certificate_file",
    )
    tracing_insecure: bool | None = key(
        FLAG,
        None,
        "gRPC: true = without TLS.",
        name="tracing.insecure",
        default_text="as the scheme of the endpoint says, else false",
    )
    tracing_timeout: int | None = key(
        Whole(1),
        None,
        "For sending some spans, with repeats.",
        name="tracing.timeout",
        unit="seconds",
        default_text="10",
    )
    tracing_compression: str | None = key(
        Text(choices=("none", "gzip", "deflate")),
        None,
        "Of what is sent.",
        name="tracing.compression",
        default_text="none",
    )

    def tracing_settings(self) -> OtlpSettings | None:
        """How spans are sent; None = they are not."""
        if not self.tracing_enabled:
            return None
        return OtlpSettings(
            self.tracing_protocol,
            self.tracing_endpoint,
            self.tracing_service_name,
            self.tracing_tls_cert,
            self.tracing_tls_key,
            self.tracing_tls_ca or self.tracing_certificate_file,
            self.tracing_insecure,
            self.tracing_timeout,
            self.tracing_compression,
        )


def check_tracing(settings: TracingSettings, document: Document, problems: Problems) -> None:
    """Report what cannot work: each is an error, because no span would be sent."""

    def refuse(name: str, message: str, severity: Severity = Severity.ERROR) -> None:
        path = ["tracing", name]
        problems.add(document.path, document.line_of(path), path, message, severity)

    if not settings.tracing_enabled:
        return
    http = settings.tracing_protocol == HTTP
    missing = missing_module(settings.tracing_protocol)
    if missing is not None:
        refuse("enabled", f"{missing} is not installed; {how_to_install('tracing')}", Severity.INCOMPLETE)
    if http and settings.tracing_insecure is not None:
        refuse("insecure", f"only for protocol {GRPC}; with {HTTP} the endpoint begins with http:// or https://")
    if http and not (settings.tracing_endpoint or "http://").startswith(("http://", "https://")):
        refuse("endpoint", f"with protocol {HTTP} it begins with http:// or https://")
    if not http and settings.tracing_certificate_file:
        refuse("certificate_file", f"only for protocol {HTTP}; use tls_ca")
    if settings.tracing_certificate_file and settings.tracing_tls_ca:
        refuse("certificate_file", "it means the same as tls_ca; give one of them")
    for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, f"tracing_{one}") and not getattr(settings, f"tracing_{other}"):
            refuse(one, f"it needs {other}")
