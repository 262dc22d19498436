// SPDX-License-Identifier: Apache-2.0
// Tells the page that records have changed: it then asks for its live part again, with the filters of its address.
(() => {
  "use strict";
  const KINDS = ["nodes", "requests", "providers", "launchers", "images"];
  // Viewers of a change do not ask all at the same moment.
  const [AGAIN_MS, JITTER_MS] = [5000, 50];
  const { stream: address, snapshot: shown } = document.currentScript.dataset;
  let [stale, lost, again, soon, stream] = [document.getElementById("stale"), false, 0, 0, null];

  const ask = () => document.body.dispatchEvent(new Event("records-changed"));
  // The server tells of all kinds at the same time, and not often: the page asks once for all of them.
  const askSoon = () => (soon ||= setTimeout(() => ((soon = 0), ask()), Math.random() * JITTER_MS));
  const shows = (kind) => document.getElementById("live")?.dataset.kinds.split(" ").includes(kind);
  const setLost = (isLost) => {
    if (isLost && !lost) document.getElementById("stale-since").textContent = new Date().toLocaleTimeString();
    else if (lost && !isLost) ask();
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
    // No message reports what changed after this page was made and before the stream began.
    stream.addEventListener("hello", (event) => String(JSON.parse(event.data).snapshot) === shown || ask());
    stream.addEventListener("reset", ask);
    KINDS.forEach((kind) => stream.addEventListener(kind, () => shows(kind) && askSoon()));
  };
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && (connect(), ask()));
  // A browser has six connections to a server for all its tabs: one that is not seen keeps none.
  document.addEventListener("visibilitychange", () => document.hidden ? disconnect() : connect());
  document.hidden || connect();
  // "/" goes to the search, unless it is typed into a field.
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.altKey || event.metaKey || event.target.closest?.("input, textarea, select")) return;
    event.preventDefault();
    document.getElementById("search").select();
  });
  // The button beside a command copies it.
  addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    await navigator.clipboard?.writeText(button.dataset.copy).catch(() => null);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1500);
  });
})();
