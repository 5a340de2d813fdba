/** `<at-rejections>`: how many layouts each rule refused before anything was measured. */

import { h, meter } from "../dom.js";
import { number, words } from "../format.js";

class Rejections extends HTMLElement {
  #shown = "";

  set data({ job }) {
    const shown = JSON.stringify(job.rejections);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const rules = Object.entries(job.rejections).sort((a, b) => b[1] - a[1]);
    const most = rules.length > 0 ? rules[0][1] : 1;
    const total = rules.reduce((sum, [, n]) => sum + n, 0);
    this.replaceChildren(h("section", { class: "card", "aria-label": "Refused layouts" },
      h("div", { class: "head" }, h("h2", {}, "Refused layouts"), h("span", { class: "muted small num" }, number(total))),
      h("div", { class: "body" }, rules.length === 0
        ? h("p", { class: "muted" }, "Every layout of the search space is possible.")
        : h("div", { class: "bars", role: "list" }, ...rules.map(([rule, n]) =>
          h("div", { class: "row", role: "listitem" },
            h("span", {}, words(rule)), h("span", { class: "num muted" }, number(n)),
            meter([["quiet", (100 * n) / most]], { thin: true })))))));
  }
}

customElements.define("at-rejections", Rejections);
