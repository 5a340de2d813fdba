/** `<at-progress>`: how far the job is, and the trial that runs now with its step. */

import { h, meter } from "../dom.js";
import { duration, number, progress } from "../format.js";
import { FINISHED, stateBadge } from "../states.js";

class Progress extends HTMLElement {
  #step = null;

  connectedCallback() {
    this.ticker = setInterval(() => this.job && !FINISHED.includes(this.job.state) && this.#draw(), 1000);
  }

  disconnectedCallback() {
    clearInterval(this.ticker);
  }

  set data({ job, trials }) {
    this.job = job;
    this.trials = trials;
    this.#draw();
  }

  /** A step of the running trial, from the stream: it is not stored anywhere else. */
  step(data) {
    this.#step = data;
    if (this.job) this.#draw();
  }

  #draw() {
    const { job } = this;
    const { done, total } = progress(job);
    const running = this.trials.find((t) => t.state === "running" || t.state === "launching");
    const confirming = this.#step?.purpose === "confirm" && !FINISHED.includes(job.state) && !running;
    const parts = [
      ["good", (100 * job.trials.succeeded) / total],
      ["bad", (100 * job.trials.failed) / total],
      ["quiet", (100 * job.trials.cancelled) / total],
      ["live", (100 * (job.trials.running + job.trials.launching)) / total],
    ];
    this.replaceChildren(h("section", { class: "card progress", "aria-label": "Progress" }, h("div", { class: "body" },
      h("div", { class: "big num" }, `${done} `, h("small", {}, `of up to ${total} trials`)),
      meter(parts, { label: `${done} of ${total} trials` }),
      h("div", { class: "counts" },
        stateBadge("succeeded", { text: `${job.trials.succeeded} measured` }),
        job.trials.failed ? stateBadge("failed", { text: `${job.trials.failed} failed` }) : null,
        job.trials.cancelled ? stateBadge("cancelled", { text: `${job.trials.cancelled} cancelled` }) : null),
      h("p", { class: "muted small num" }, this.#time()),
      running || confirming ? this.#running(running) : null)));
  }

  #time() {
    const { started_at: started, finished_at: finished, candidates, spec } = this.job;
    const layouts = `${number(candidates)} layouts to choose from`;
    if (!started) return layouts;
    const spent = ((finished ? Date.parse(finished) : Date.now()) - Date.parse(started)) / 1000;
    return `${duration(Math.max(1, spent))} of at most ${duration(spec.budget.max_seconds)} · ${layouts}`;
  }

  #running(trial) {
    const step = this.#step && (!trial || this.#step.number === trial.number) ? this.#step : null;
    const what = trial ?? this.trials.find((t) => t.number === step.number);
    const percent = step ? (100 * step.step) / step.total_steps : 0;
    const text = !step || step.step === 0 ? "starting" : `step ${step.step} of ${step.total_steps}`;
    return h("div", { class: "running" },
      h("div", { class: "line small" },
        stateBadge(trial ? trial.state : "running", { text: `${trial ? "Trial" : "Confirming trial"} ${what?.number ?? ""}` }),
        h("span", { class: "muted num nowrap" }, text)),
      what ? h("code", {}, what.key) : null,
      meter([["live", percent]], { thin: true, label: text }));
  }
}

customElements.define("at-progress", Progress);
