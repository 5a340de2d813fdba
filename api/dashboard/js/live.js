/** One event stream a page, and the gathering of many events into few requests. */

import { h } from "./dom.js";

const KINDS = [
  "job.created", "job.state", "job.best", "job.note",
  "trial.created", "trial.state", "trial.progress", "trial.confirmed",
];
const RETRY_MS = 3000;

/**
 * Follows a stream. The browser reconnects by itself and resumes after the last event it saw; only when the service
 * refuses (it is full, or gone for long) a new stream is opened here.  `onReload` is called when state must be fetched
 * anew: at the start, and after events may have been missed.
 */
export class LiveStream {
  #source = null;
  #timer = 0;

  constructor(url, { onEvent, onReload }) {
    this.url = url;
    this.onEvent = onEvent;
    this.onReload = onReload;
    this.#open();
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    const source = new EventSource(this.url);
    this.#source = source;
    source.addEventListener("stream.open", () => {
      announce("live");
      this.onReload();
    });
    source.addEventListener("stream.reset", () => this.onReload());
    for (const kind of KINDS) source.addEventListener(kind, (message) => this.onEvent(JSON.parse(message.data)));
    source.addEventListener("error", () => {
      announce("lost");
      if (source.readyState !== EventSource.CLOSED) return;
      source.close();
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#open(), RETRY_MS);
    });
  }
}

/** Calls `run` once after calls have stopped for `quietMs`, but never later than `maxMs` after the first one. */
export function gather(run, { quietMs, maxMs }) {
  let timer = 0;
  let first = 0;
  return () => {
    const now = performance.now();
    if (timer === 0) first = now;
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = 0;
      run();
    }, Math.max(0, Math.min(quietMs, first + maxMs - now)));
  };
}

function announce(state) {
  document.dispatchEvent(new CustomEvent("connection", { detail: state }));
}

const TEXTS = { live: "Live", lost: "Reconnecting…" };

/** `<at-connection>`: says whether what is shown is up to date. */
class Connection extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "status");
    document.addEventListener("connection", (event) => {
      this.replaceChildren(h("span", { class: `connection ${event.detail}` }, TEXTS[event.detail]));
    });
  }
}

customElements.define("at-connection", Connection);
