// SPDX-License-Identifier: Apache-2.0
// Tells the page that records have changed: it then asks for its live part again, with the filters of its address.
(() => {
  "use strict";
  const KINDS = ["nodes", "requests", "providers", "launchers", "images", "event"];
  const AGAIN_MS = 5000;
  // Viewers of a change do not ask all at the same moment.
  const JITTER_MS = 100;
  const { stream: address, snapshot: shown } = document.currentScript.dataset;
  const stale = document.getElementById("stale");
  let [lost, again, stream] = [false, 0, null];

  const changed = (kind) => document.body.dispatchEvent(new Event("changed-" + kind));
  const setLost = (isLost) => {
    if (isLost && !lost) document.getElementById("stale-since").textContent = new Date().toLocaleTimeString();
    if (!isLost && lost) changed("all");
    [lost, stale.hidden] = [isLost, !isLost];
  };
  const disconnect = () => (clearTimeout(again), stream?.close());
  const connect = () => {
    disconnect();
    stream = new EventSource(address);
    stream.onopen = () => setLost(false);
    stream.onerror = () => {
      setLost(true);
      // The browser tries again by itself unless the server refused.
      if (stream.readyState === EventSource.CLOSED) again = setTimeout(connect, AGAIN_MS);
    };
    // What changed after this page was made and before the stream began is told by nobody.
    stream.addEventListener("hello", (event) => String(JSON.parse(event.data).snapshot) === shown || changed("all"));
    stream.addEventListener("reset", () => changed("all"));
    KINDS.forEach((kind) => stream.addEventListener(kind, () => setTimeout(changed, Math.random() * JITTER_MS, kind)));
  };
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && (connect(), changed("all")));
  // A browser has six connections to a server for all its tabs: one that nobody sees must keep none of them.
  document.addEventListener("visibilitychange", () => document.hidden ? disconnect() : connect());
  document.hidden || connect();
})();
