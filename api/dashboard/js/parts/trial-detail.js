/** `<at-trial-detail>`: one trial opened. Failure in full, where the time is expected to go, the end of a log. */

import { api } from "../api.js";
import { h } from "../dom.js";
import { bytes, layoutInWords, seconds, words } from "../format.js";

class TrialDetail extends HTMLElement {
  connectedCallback() {
    const { trial } = this;
    this.log = h("div", { "aria-live": "polite" });
    this.replaceChildren(h("div", { class: "inside" },
      h("p", {}, layoutInWords(trial.config)),
      trial.failure ? failure(trial.failure) : null,
      h("dl", { class: "facts num small" }, ...facts(trial)),
      h("div", { class: "buttons" }, h("button", { onclick: () => this.#load() }, "Log of rank 0")),
      this.log));
  }

  async #load() {
    this.log.replaceChildren(h("p", { class: "muted" }, "Loading…"));
    try {
      const text = await api.log(this.trial.id, 0);
      this.log.replaceChildren(text ? h("pre", { class: "code" }, text) : h("p", { class: "muted" }, "The log is empty."));
    } catch (error) {
      this.log.replaceChildren(h("p", { class: "notice warn" }, error.message));
    }
  }
}

function failure(value) {
  const where = value.rank === null ? "" : ` on rank ${value.rank}`;
  return h("div", {},
    h("p", {}, h("b", {}, `${words(value.kind)}${where}: `), value.message),
    value.log_tail ? h("pre", { class: "code" }, value.log_tail) : null);
}

function facts(trial) {
  const { measurement, estimate } = trial;
  const found = [];
  if (measurement) {
    const step = measurement.step_seconds;
    found.push(["Step, median", seconds(step.median)], ["p10 – p90", `${seconds(step.p10)} – ${seconds(step.p90)}`],
      ["Steps", `${step.count} in ${measurement.runs} run${measurement.runs > 1 ? "s" : ""}`],
      ["Start-up", seconds(measurement.startup_seconds)]);
    measurement.peak_memory_per_stage_bytes.forEach((value, stage) => found.push([`Memory of stage ${stage}`, bytes(value)]));
  }
  if (estimate) {
    for (const [part, value] of Object.entries(estimate.time)) {
      if (value > 0) found.push([`Estimated ${words(part)}`, seconds(value)]);
    }
  }
  return found.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

customElements.define("at-trial-detail", TrialDetail);
