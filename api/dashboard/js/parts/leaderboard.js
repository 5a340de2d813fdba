/** `<at-leaderboard>`: every trial, measured ones first; each row opens to its reason, breakdown and log. */

import { h, svg } from "../dom.js";
import { bytes, number, signedPercent, words } from "../format.js";
import { stateBadge } from "../states.js";
import "./trial-detail.js";

const COLUMNS = [
  { name: "#", sort: (t) => -t.number, key: "number" },
  { name: "Layout" },
  { name: "Tokens/s", sort: (t) => t.measurement?.tokens_per_second, key: "speed", right: true },
  { name: "Estimated", sort: (t) => t.estimate?.tokens_per_second, key: "estimate", right: true },
  { name: "Peak memory", sort: (t) => t.measurement && -t.measurement.peak_memory_bytes, key: "memory", right: true },
  { name: "Chosen by" },
  { name: "State" },
];
// A longer list is folded: the best ones matter, and thousands of rows would make the page slow.
const FIRST = 12;
const SOURCES = { baseline: "baseline", estimate: "estimate", sampler: "search", manual: "hand" };
const ORDER = { succeeded: 0, running: 1, launching: 1, queued: 2, failed: 3, cancelled: 4 };

class Leaderboard extends HTMLElement {
  #open = new Set();
  #all = false;
  #sort = "speed";
  #shown = "";

  set data({ best, trials }) {
    this.trials = trials;
    this.bestId = best?.trial_id ?? null;
    const shown = JSON.stringify([this.bestId, trials.map((t) => [t.id, t.state, t.measurement?.runs, t.attempts])]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#draw();
  }

  #draw() {
    const focused = this.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
    const scale = spreadScale(this.trials);
    const trials = this.#sorted();
    const shown = this.#all ? trials : trials.slice(0, FIRST);
    const rows = shown.flatMap((trial) => this.#rows(trial, scale));
    this.replaceChildren(h("section", { class: "card leaderboard", "aria-label": "Layouts tried" },
      h("div", { class: "head" }, h("h2", {}, "Layouts tried"),
        h("span", { class: "muted small" }, "bars show p10 – p90 of the measured steps")),
      rows.length === 0
        ? h("div", { class: "empty" }, "Nothing has been tried yet.")
        : h("div", { class: "scroll" }, h("table", { class: "stack" }, this.#head(), h("tbody", {}, ...rows))),
      shown.length < trials.length ? this.#more(trials.length) : null));
    if (focused) this.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  #more(total) {
    const show = () => {
      this.#all = true;
      this.#draw();
    };
    return h("div", { class: "more" }, h("button", { onclick: show }, `Show all ${total}`));
  }

  #sorted() {
    const { sort } = COLUMNS.find((column) => column.key === this.#sort);
    const value = (trial) => sort(trial) ?? -Infinity;
    const place = (trial) => (this.#sort === "number" ? 0 : ORDER[trial.state]);
    return [...this.trials].sort((a, b) => place(a) - place(b) || value(b) - value(a) || a.number - b.number);
  }

  #head() {
    const cells = COLUMNS.map((column) => {
      const sorted = column.key === this.#sort;
      const choose = () => {
        this.#sort = column.key;
        this.#draw();
      };
      return h("th", {
        scope: "col", class: column.right ? "right" : "",
        "aria-sort": sorted ? (column.key === "number" || column.key === "memory" ? "ascending" : "descending") : null,
      }, column.key ? h("button", { onclick: choose, "data-focus": `sort ${column.key}` }, column.name, sorted ? " ↓" : "")
        : column.name);
    });
    return h("thead", {}, h("tr", {}, ...cells, h("th", {}, h("span", { class: "hidden-visually" }, "Details"))));
  }

  #rows(trial, scale) {
    const open = this.#open.has(trial.id);
    const toggle = () => {
      if (open) this.#open.delete(trial.id);
      else this.#open.add(trial.id);
      this.#draw();
    };
    const row = h("tr", { class: trial.id === this.bestId ? "best" : "" },
      h("td", { class: "num muted", "data-label": "Trial" }, trial.number),
      h("td", { class: "lead" }, h("code", {}, trial.key), h("p", { class: "reason" }, trial.reason), hint(trial)),
      measured(trial, scale), estimated(trial), memory(trial),
      h("td", { "data-label": "Chosen by" }, SOURCES[trial.source] ?? trial.source),
      h("td", { "data-label": "State" }, stateBadge(trial.state,
        trial.failure ? { text: words(trial.failure.kind) } : {})),
      h("td", { class: "right" }, h("button", {
        class: "plain", "aria-expanded": String(open), "data-focus": trial.id,
        "aria-label": `Details of trial ${trial.number}`, onclick: toggle,
      }, open ? "Less" : "More")));
    if (!open) return [row];
    const detail = h("at-trial-detail");
    detail.trial = trial;
    return [row, h("tr", { class: "detail" }, h("td", { colspan: COLUMNS.length + 1 }, detail))];
  }
}

function hint(trial) {
  if (!trial.failure) return null;
  return h("p", { class: "hint" }, trial.failure.hint || trial.failure.message);
}

function measured(trial, scale) {
  const attributes = { class: "right num", "data-label": "Tokens/s" };
  if (!trial.measurement) return h("td", { ...attributes, class: "right muted" }, "–");
  return h("td", attributes, h("div", {}, number(trial.measurement.tokens_per_second), spread(trial, scale)));
}

function estimated(trial) {
  const attributes = { class: "right num", "data-label": "Estimated" };
  if (!trial.estimate) return h("td", { ...attributes, class: "right muted" }, "–");
  const guess = trial.estimate.tokens_per_second;
  const truth = trial.measurement?.tokens_per_second;
  return h("td", attributes, h("div", {}, number(guess),
    truth ? h("span", { class: "sub" }, `${signedPercent(guess / truth - 1)} off`) : null));
}

function memory(trial) {
  const attributes = { class: "right num nowrap", "data-label": "Peak memory" };
  const guess = trial.estimate?.memory_bytes;
  if (!trial.measurement && guess === undefined) return h("td", { ...attributes, class: "right muted" }, "–");
  return h("td", attributes, h("div", {}, bytes(trial.measurement?.peak_memory_bytes),
    guess === undefined ? null : h("span", { class: "sub" }, `est. ${bytes(guess)}`)));
}

/** Throughput at p10 and p90 of the step time: a slow step is few tokens. */
function ends(trial) {
  const { tokens_per_second: speed, step_seconds: step } = trial.measurement;
  const tokens = speed * step.median;
  return [tokens / step.p90, tokens / step.p10];
}

function spreadScale(trials) {
  const all = trials.filter((t) => t.measurement).flatMap(ends);
  // From the slowest to the fastest, not from zero: a spread of one percent is to be seen.
  const low = 0.98 * Math.min(...all);
  const high = 1.01 * Math.max(...all);
  return (value) => (100 * (value - low)) / (high - low);
}

function spread(trial, scale) {
  const [low, high] = ends(trial).map(scale);
  const middle = scale(trial.measurement.tokens_per_second);
  const line = (name, x1, x2, y1, y2) => svg("line", { class: name, x1, x2, y1, y2 });
  return svg("svg", { class: "spread", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    line("axis", 0, 100, 6, 6), line("range", low, Math.max(high, low + 1), 6, 6), line("median", middle, middle, 1, 11));
}

customElements.define("at-leaderboard", Leaderboard);
