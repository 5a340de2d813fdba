/** `<at-launch>`: the script that starts the best layout, to copy or to download with its files. */

import { api, links } from "../api.js";
import { h, icon } from "../dom.js";

const LAUNCHER = "torchrun";
const COPIED_MS = 1600;

class Launch extends HTMLElement {
  #shown = "";

  connectedCallback() {
    this.view = h("div", { class: "view" });
    this.copy = h("button", { onclick: () => this.#copy(), disabled: true }, icon("copy"), h("span", {}, "Copy"));
    this.zip = h("a", { class: "button", download: true, hidden: true }, icon("download"), "Download zip");
    this.replaceChildren(h("section", { class: "card launch", "aria-label": "Launch script" },
      h("div", { class: "head" },
        h("h2", {}, "Launch script"),
        h("div", { class: "buttons" }, this.copy, this.zip)),
      h("div", { class: "body" }, this.view)));
  }

  set data({ job, best }) {
    const shown = best === null ? "none" : `${job.id} ${best.trial_id}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.jobId = job.id;
    this.ready = best !== null;
    this.#load();
  }

  async #load() {
    if (!this.ready) {
      this.view.replaceChildren(h("p", { class: "muted" }, "The script appears with the first measured layout."));
      return;
    }
    try {
      const bundle = await api.bundle(this.jobId, LAUNCHER);
      const main = bundle.files.find((file) => file.path === "launch.sh") ?? bundle.files[0];
      this.script = main.text;
      this.zip.href = links.zip(this.jobId, LAUNCHER);
      this.zip.hidden = false;
      this.copy.disabled = false;
      const others = bundle.files.filter((file) => file !== main).map((file) => file.path);
      this.view.replaceChildren(
        h("pre", { class: "code", tabindex: "0", "aria-label": main.path }, main.text),
        h("p", { class: "muted small" },
          h("code", {}, main.path), others.length > 0 ? ` · the zip also holds ${listed(others)}` : ""));
    } catch (error) {
      this.copy.disabled = true;
      this.zip.hidden = true;
      this.view.replaceChildren(h("p", { class: "notice warn" }, error.message));
    }
  }

  async #copy() {
    const label = this.copy.querySelector("span");
    try {
      await navigator.clipboard.writeText(this.script);
      label.textContent = "Copied";
    } catch {
      // Not allowed (no secure origin): the text is selected, so that the keyboard can copy it.
      getSelection().selectAllChildren(this.view.querySelector("pre"));
      label.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { label.textContent = "Copy"; }, COPIED_MS);
  }
}

/** A few names, and how many more: the trainer's own sources come with the script. */
function listed(paths) {
  const top = paths.filter((path) => !path.includes("/"));
  const inside = paths.length - top.length;
  return [...top, ...(inside > 0 ? [`${inside} files of the trainer`] : [])].join(", ");
}

customElements.define("at-launch", Launch);
