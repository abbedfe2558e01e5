// Search in a page that was opened from a file. The theme asks for search/search_index.js there by itself, but browsers start no
// worker from a file; so the worker's text comes in a script as well (search/worker.js), and is started from memory.
(function () {
  if (location.protocol !== "file:") return;
  const Real = window.Worker;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const script = document.createElement("script");
      script.src = String(new URL("../../../search/worker.js", new URL(url, location.href)));
      script.onload = () => this.start(window.__worker);
      document.head.appendChild(script);
    }

    start(text) {
      this.real = new Real(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
      this.real.onmessage = (event) => this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      for (const message of this.waiting) this.real.postMessage(message);
    }

    postMessage(message) {
      if (this.real) this.real.postMessage(message);
      else this.waiting.push(message);
    }
  };
})();
