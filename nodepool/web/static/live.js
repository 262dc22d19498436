// SPDX-License-Identifier: Apache-2.0
// The server sends the live part of the page when records that it shows change. Without that the page asks for it.
(() => {
  "use strict";
  const [AGAIN_MS, OLD_MS] = [5000, 25000];
  const { stream: address, snapshot: shown } = document.currentScript.dataset;
  let [stale, lost, again, stream, shownAt] = [document.getElementById("stale"), false, 0, null, Date.now()];

  const ask = () => document.body.dispatchEvent(new Event("show-again"));
  const show = (text) => {
    const live = document.getElementById("live");
    shownAt = Date.now();
    htmx.swap({ sourceElement: live, target: live, swap: "outerMorph", text });
  };
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
    stream.addEventListener("part", (event) => show(JSON.parse(event.data).html));
  };
  // Ages grow, and something on the way may hold back what the stream sends.
  setInterval(() => document.hidden || Date.now() - shownAt < OLD_MS || ((shownAt = Date.now()), ask()), AGAIN_MS);
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
