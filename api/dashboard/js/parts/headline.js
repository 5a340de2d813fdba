/** `<at-headline>`: the answer so far. Which layout, how fast, compared to what, how sure, and why it stopped. */

import { h } from "../dom.js";
import { bytes, layoutInWords, number, seconds, signedPercent } from "../format.js";
import { FINISHED } from "../states.js";

// From here on "4.2×" says it all, and "+320 %" only confuses.
const READS_AS_FACTOR = 3;

class Headline extends HTMLElement {
  #shown = "";

  set data({ job, best, trials }) {
    const shown = JSON.stringify([job.state, job.error, job.stopped_because, best, trials.length === 0]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.replaceChildren(
      h("section", { class: "card headline", "aria-label": "Best layout" }, best ? found(job, best, trials) : nothing(job, trials)));
  }
}

function found(job, best, trials) {
  const finished = FINISHED.includes(job.state);
  return h("div", { class: "body" },
    h("div", {},
      h("p", { class: "eyebrow" }, finished ? "Best layout" : "Best layout so far"),
      h("p", { class: "layout" }, ...unbroken(layoutInWords(best.config))),
      h("code", {}, trials.find((trial) => trial.id === best.trial_id)?.key ?? "")),
    h("dl", { class: "figures num" },
      figure("Throughput", number(best.tokens_per_second), "tokens/s"),
      gain(best),
      figure("Step", seconds(best.step_seconds.median),
        `p10 ${seconds(best.step_seconds.p10)}, p90 ${seconds(best.step_seconds.p90)}`),
      figure("Peak memory", bytes(best.peak_memory_bytes), `of ${bytes(job.spec.cluster.device.memory_bytes)} a device`),
      best.mfu === null ? null : figure("MFU", `${(100 * best.mfu).toFixed(1)} %`, "of peak")),
    h("div", { class: "sentences small" },
      h("p", {}, h("b", {}, "Certainty: "), best.certainty),
      best.stopped_because ? h("p", {}, h("b", {}, "Stopped: "), best.stopped_because) : null,
      job.error ? h("p", {}, h("b", {}, "Error: "), job.error) : null));
}

/** Lines may break between the parts of a layout, never inside one ("micro-" / "batch 4"). */
function unbroken(sentence) {
  return sentence.split(", ").flatMap((part, i) => [i > 0 ? ", " : null, h("span", { class: "nowrap" }, part)]);
}

function figure(name, value, note) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, note)));
}

function gain(best) {
  if (best.baseline === null || best.speedup_over_baseline === null) return null;
  if (best.baseline.trial_id === best.trial_id) return figure("Gain", "none", `it is ${best.baseline.relation}`);
  return figure("Gain", `${best.speedup_over_baseline.toFixed(2)}×`,
    best.speedup_over_baseline < READS_AS_FACTOR
      ? `${signedPercent(best.speedup_over_baseline - 1)} over ${best.baseline.relation}` : `over ${best.baseline.relation}`);
}

function nothing(job, trials) {
  const waiting = job.state === "queued" && trials.length === 0;
  const title = FINISHED.includes(job.state) ? "No layout was measured" : waiting ? "Waiting for a worker" : "Measuring";
  const text = job.error || job.stopped_because || (waiting
    ? "The job is taken up as soon as a worker is free."
    : "The first result appears here as soon as a layout has been measured.");
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text));
}

customElements.define("at-headline", Headline);
