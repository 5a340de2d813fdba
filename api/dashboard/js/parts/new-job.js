/** `<at-new-job>`: a job as JSON, checked by the service before it is handed in; errors are told field by field. */

import { api, links } from "../api.js";
import { h, icon } from "../dom.js";
import { bytes, count, number, words } from "../format.js";

const TOP = 5;
const EXAMPLE = {
  name: "small gpt on this machine",
  model: { name: "gpt-small", num_layers: 4, hidden_size: 128, num_heads: 4, vocab_size: 512, max_seq_len: 128 },
  workload: { global_batch_size: 8 },
  cluster: { preset: "local", devices_per_node: 4 },
  budget: { max_trials: 12, max_seconds: 600 },
};

class NewJob extends HTMLElement {
  connectedCallback() {
    this.text = h("textarea", {
      id: "job-text", spellcheck: "false", autocapitalize: "off", "aria-describedby": "job-text-help",
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#submit();
      },
    });
    this.text.value = JSON.stringify(EXAMPLE, null, 2);
    this.check = h("button", { type: "button", onclick: () => this.#check() }, "Check");
    this.start = h("button", { type: "button", class: "primary", onclick: () => this.#submit() }, "Start tuning");
    this.result = h("div", { "aria-live": "polite" });
    this.replaceChildren(
      h("details", { class: "card new-job" },
        h("summary", {}, icon("plus"), h("h2", {}, "New job")),
        h("div", { class: "body" },
          h("p", { class: "muted small", id: "job-text-help" },
            "Only the model, the global batch and the cluster are required; all else is derived. ",
            h("a", { href: "/docs" }, "All fields")),
          h("label", { class: "hidden-visually", for: "job-text" }, "The job as JSON"),
          this.text,
          h("div", { class: "buttons" }, this.start, this.check),
          this.result)),
    );
  }

  async #check() {
    await this.#busy(async () => {
      const report = await api.estimate(this.text.value, TOP);
      this.result.replaceChildren(preview(report));
    });
  }

  async #submit() {
    await this.#busy(async () => {
      const job = await api.submit(this.text.value);
      location.assign(links.job(job.id));
    });
  }

  async #busy(action) {
    this.check.disabled = this.start.disabled = true;
    this.result.replaceChildren(h("p", { class: "muted" }, "Working out the layouts…"));
    try {
      await action();
    } catch (error) {
      this.result.replaceChildren(refusal(error));
      this.text.focus();
    } finally {
      this.check.disabled = this.start.disabled = false;
    }
  }
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value));
}

function preview(report) {
  const rejected = Object.values(report.rejections).reduce((sum, n) => sum + n, 0);
  const rows = report.ranked.map((line) =>
    h("tr", {},
      h("td", { class: "lead" }, h("code", {}, line.key)),
      h("td", { class: "right num", "data-label": "Tokens/s" }, number(line.tokens_per_second)),
      h("td", { class: "right num", "data-label": "Memory" }, bytes(line.memory_bytes)),
      h("td", { class: "right num", "data-label": "Fits" }, `${Math.round(100 * line.probability_fits)} %`)));
  return h("div", { class: "preview" },
    h("dl", { class: "facts" },
      fact("Parameters", count(report.parameters)),
      fact("Layouts to choose from", number(report.candidates)),
      fact("Refused", number(rejected))),
    h("table", { class: "stack" },
      h("thead", {}, h("tr", {},
        h("th", { scope: "col" }, `Best ${rows.length} by estimate`),
        h("th", { scope: "col", class: "right" }, "Tokens/s"),
        h("th", { scope: "col", class: "right" }, "Memory"),
        h("th", { scope: "col", class: "right" }, "Fits"))),
      h("tbody", {}, ...rows)),
    rejected === 0 ? null : h("p", { class: "muted small" }, `Refused: ${histogram(report.rejections)}.`));
}

function histogram(rejections) {
  return Object.entries(rejections)
    .sort((a, b) => b[1] - a[1])
    .map(([rule, n]) => `${words(rule)} ${n}`)
    .join(", ");
}

function refusal(error) {
  const fields = (error.errors ?? []).map((e) => h("li", {}, h("code", {}, e.field), ` ${e.message}`));
  const examples = (error.examples ?? []).map((e) => h("li", {}, `${e.message}. ${e.fix}`));
  const refused = error.rejections ? h("p", { class: "small" }, `By rule: ${histogram(error.rejections)}.`) : null;
  const list = fields.length > 0 ? fields : examples;
  return h("div", { class: "notice bad", role: "alert" },
    fields.length > 0 ? h("p", {}, fields.length === 1 ? "One field is wrong." : `${fields.length} fields are wrong.`)
      : h("p", {}, error.message),
    refused,
    list.length > 0 ? h("ul", {}, ...list) : null);
}

customElements.define("at-new-job", NewJob);
