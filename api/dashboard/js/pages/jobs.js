/** `<at-jobs-page>`: all jobs, newest first, and the box that starts a new one. Kept up to date by one stream. */

import { api, links, streams } from "../api.js";
import { h, meter, skeleton } from "../dom.js";
import { ago, devices, moment, number, progress } from "../format.js";
import { LiveStream, gather } from "../live.js";
import { FINISHED, stateBadge } from "../states.js";
import "../parts/new-job.js";

const PAGE = 50;
const RETRY_MS = 5000;
const COLUMNS = ["Job", "State", "Model", "Devices", ["Best tokens/s", "right"], ["Trials", "right"], ["Created", "right"]];

class JobsPage extends HTMLElement {
  #jobs = new Map();
  #cursor = null;
  #changed = new Set();
  #workers = null;
  #loaded = false;

  connectedCallback() {
    document.title = "Jobs · autotuner";
    this.table = h("section", { class: "card", "aria-label": "Jobs" }, skeleton(5));
    this.note = h("div");
    this.replaceChildren(
      h("div", { class: "stacked" },
        h("h1", {}, "Tuning jobs"), this.note, h("at-new-job"), this.table),
    );
    this.refresh = gather(() => this.#refetchChanged(), { quietMs: 300, maxMs: 1200 });
    this.stream = new LiveStream(streams.all, {
      onReload: () => this.#load(),
      onEvent: (event) => this.#onEvent(event),
    });
    this.#load();
    // Ages grow although nothing happens.
    this.ticker = setInterval(() => this.#loaded && this.#draw(), 30_000);
  }

  disconnectedCallback() {
    this.stream.close();
    clearInterval(this.ticker);
  }

  #onEvent(event) {
    if (event.kind === "trial.progress") return;
    this.#changed.add(event.job_id);
    this.refresh();
  }

  async #load() {
    try {
      const [page, workers] = await Promise.all([api.jobs({ limit: PAGE }), api.workers()]);
      this.#workers = workers.items;
      for (const job of page.items) this.#jobs.set(job.id, job);
      // Pages that were loaded before stay; a job of this page's time span that is not in it was deleted.
      const oldest = page.items.at(-1)?.id;
      const listed = new Set(page.items.map((job) => job.id));
      for (const id of this.#jobs.keys()) {
        if (!listed.has(id) && (page.next_cursor === null || id > oldest)) this.#jobs.delete(id);
      }
      if (!this.#loaded) this.#cursor = page.next_cursor;
      this.#loaded = true;
      this.note.replaceChildren();
      this.#draw();
    } catch (error) {
      this.#fail(error);
    }
  }

  async #refetchChanged() {
    const ids = [...this.#changed];
    this.#changed.clear();
    const known = ids.every((id) => this.#jobs.has(id));
    if (!known || ids.length > 5) {
      await this.#load();
      return;
    }
    try {
      for (const job of await Promise.all(ids.map((id) => api.job(id)))) this.#jobs.set(job.id, job);
      this.#draw();
    } catch (error) {
      if (error.status === 404) await this.#load();
      else this.#fail(error);
    }
  }

  async #more() {
    try {
      const page = await api.jobs({ limit: PAGE, cursor: this.#cursor });
      for (const job of page.items) this.#jobs.set(job.id, job);
      this.#cursor = page.next_cursor;
      this.#draw();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    this.note.replaceChildren(h("p", { class: "notice bad", role: "alert" }, error.message));
    if (!this.#loaded) this.table.replaceChildren();
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.#load(), RETRY_MS);
  }

  #draw() {
    const jobs = [...this.#jobs.values()].sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
    if (jobs.length === 0) {
      this.querySelector("details.new-job").open = true;
      this.table.replaceChildren(
        h("div", { class: "empty" },
          h("h2", {}, "No jobs yet"),
          h("p", {}, "A job measures the layouts of one training run and names the fastest. Start one above.")),
      );
      return;
    }
    const waiting = this.#workers.length === 0 && jobs.some((job) => !FINISHED.includes(job.state));
    const focused = this.table.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.table.replaceChildren(
      waiting ? noWorkerNotice() : "",
      h("table", { class: "jobs-table stack" }, head(), h("tbody", {}, ...jobs.map(row))),
      this.#cursor === null ? "" : h("div", { class: "more" }, h("button", { onclick: () => this.#more() }, "Load more")),
    );
    if (focused !== null) this.table.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
}

function noWorkerNotice() {
  return h("div", { class: "body" },
    h("p", { class: "notice warn" }, "No worker is alive, so jobs wait. Start one with ", h("code", {}, "autotuner worker"), "."));
}

function head() {
  const cells = COLUMNS.map((column) => {
    const [name, side] = Array.isArray(column) ? column : [column, ""];
    return h("th", { scope: "col", class: side }, name);
  });
  return h("thead", {}, h("tr", {}, ...cells));
}

function row(job) {
  const { done, total } = progress(job);
  const parts = [
    ["good", (100 * job.trials.succeeded) / total],
    ["bad", (100 * job.trials.failed) / total],
  ];
  return h("tr", {},
    h("td", { class: "lead" }, h("a", { class: "name", href: links.job(job.id) }, job.spec.name)),
    h("td", { "data-label": "State" }, stateBadge(job.state)),
    h("td", { "data-label": "Model" }, job.spec.model.name),
    h("td", { "data-label": "Devices" }, devices(job.spec.cluster)),
    h("td", { class: "right num", "data-label": "Best tokens/s" }, number(job.best_tokens_per_second)),
    h("td", { class: "right num", "data-label": "Trials" },
      h("span", { class: "progress-cell" }, `${done} of ${total}`, meter(parts, { thin: true }))),
    h("td", { class: "right muted nowrap", "data-label": "Created" },
      h("time", { datetime: job.created_at, title: moment(job.created_at) }, ago(job.created_at))),
  );
}

customElements.define("at-jobs-page", JobsPage);
