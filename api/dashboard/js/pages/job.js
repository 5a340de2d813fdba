/** `<at-job-page job-id>`: one job, live. Fetches, listens, and hands data to its parts; each part draws itself. */

import { api, links, streams } from "../api.js";
import { h, skeleton } from "../dom.js";
import { ago, devices, moment } from "../format.js";
import { LiveStream, gather } from "../live.js";
import { stateBadge } from "../states.js";
import "../charts/history.js";
import "../charts/scatter.js";
import "../parts/headline.js";
import "../parts/launch.js";
import "../parts/leaderboard.js";
import "../parts/progress.js";
import "../parts/rejections.js";
import "../parts/steering.js";

const RETRY_MS = 5000;
// Beyond this many changed trials one request for all of them is cheaper.
const FEW = 4;

class JobPage extends HTMLElement {
  #job = null;
  #best = null;
  #trials = new Map();
  #changed = new Set();
  #everything = false;

  connectedCallback() {
    this.id = this.getAttribute("job-id");
    this.note = h("div");
    this.head = h("div", { class: "title" });
    this.body = h("div", { class: "stacked" }, h("section", { class: "card" }, skeleton(4)));
    this.replaceChildren(
      h("p", { class: "crumb" }, h("a", { href: links.jobs }, "← All jobs")), this.head, this.note, this.body);
    this.refresh = gather(() => this.#refetch(), { quietMs: 150, maxMs: 600 });
    this.#reload();
    this.#follow();
    this.ticker = setInterval(() => this.#job && this.#drawHead(), 30_000);
  }

  disconnectedCallback() {
    this.stream?.close();
    clearInterval(this.ticker);
  }

  #follow() {
    this.stream = new LiveStream(streams.job(this.id), {
      onReload: () => this.#reload(),
      onEvent: (event) => this.#onEvent(event),
    });
  }

  #onEvent(event) {
    if (event.kind === "trial.progress") {
      this.parts?.progress.step(event.data);
      return;
    }
    if (event.trial_id !== null) this.#changed.add(event.trial_id);
    this.refresh();
  }

  #reload() {
    this.#everything = true;
    this.refresh();
  }

  async #refetch() {
    const ids = [...this.#changed];
    const all = this.#everything || ids.length > FEW;
    this.#changed.clear();
    this.#everything = false;
    try {
      const [job, trials] = await Promise.all([
        api.job(this.id),
        all ? api.trials(this.id).then((page) => page.items) : Promise.all(ids.map((id) => api.trial(id))),
      ]);
      const best = job.best_tokens_per_second === null ? null : await api.best(this.id);
      if (all) this.#trials.clear();
      for (const trial of trials) this.#trials.set(trial.id, trial);
      this.#job = job;
      this.#best = best;
      this.note.replaceChildren();
      this.#draw();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    if (error.status === 404) {
      this.stream.close();
      this.body.replaceChildren(h("section", { class: "card empty" },
        h("h2", {}, "There is no such job"), h("p", {}, "It may have been deleted.")));
      this.head.replaceChildren();
      return;
    }
    this.note.replaceChildren(h("p", { class: "notice bad", role: "alert" }, error.message));
    this.#everything = true;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.refresh(), RETRY_MS);
  }

  #draw() {
    document.title = `${this.#job.spec.name} · autotuner`;
    if (!this.parts) this.#build();
    this.#drawHead();
    const trials = [...this.#trials.values()].sort((a, b) => a.number - b.number);
    const data = { job: this.#job, best: this.#best, trials };
    for (const part of Object.values(this.parts)) part.data = data;
  }

  #build() {
    const make = (tag) => h(tag);
    this.parts = {
      steering: make("at-steering"), headline: make("at-headline"), progress: make("at-progress"),
      history: make("at-history-chart"), scatter: make("at-scatter-chart"), board: make("at-leaderboard"),
      rejections: make("at-rejections"), launch: make("at-launch"),
    };
    const { headline, progress, history, scatter, board, rejections, launch } = this.parts;
    this.names = h("div", { class: "names" });
    this.head.replaceChildren(this.names, this.parts.steering);
    this.body.replaceChildren(
      h("div", { class: "answer" }, headline, progress),
      h("div", { class: "halves" }, history, scatter),
      board,
      h("div", { class: "answer" }, launch, rejections),
      this.#spec());
  }

  #drawHead() {
    const { spec, state, created_at: created } = this.#job;
    this.names.replaceChildren(
      h("div", { class: "line" }, h("h1", {}, spec.name), stateBadge(state, { pill: true })),
      h("p", { class: "muted small" },
        `${spec.model.name} on ${devices(spec.cluster)}, ${spec.workload.precision}, batch ${spec.workload.global_batch_size}`,
        ` × ${spec.workload.seq_len} tokens · created `,
        h("time", { datetime: created, title: moment(created) }, ago(created))));
  }

  #spec() {
    return h("details", {},
      h("summary", {}, "The job in full"), h("pre", { class: "code" }, JSON.stringify(this.#job.spec, null, 2)));
  }
}

customElements.define("at-job-page", JobPage);
