/** `<at-docs-page>`: the operations of the API, read from its own description. */

import { api } from "../api.js";
import { h, skeleton } from "../dom.js";

class DocsPage extends HTMLElement {
  async connectedCallback() {
    this.replaceChildren(h("section", { class: "card" }, skeleton(6)));
    try {
      this.#draw(await api.openapi());
    } catch {
      this.replaceChildren(h("p", { class: "notice bad", role: "alert" }, "The description could not be loaded."));
    }
  }

  #draw(document) {
    const groups = new Map();
    for (const [path, operations] of Object.entries(document.paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        const tag = operation.tags?.[0] ?? "other";
        groups.set(tag, [...(groups.get(tag) ?? []), { path, method, operation }]);
      }
    }
    this.replaceChildren(h("div", { class: "stacked" },
      h("div", { class: "names" }, h("h1", {}, "API"),
        h("p", { class: "muted" }, document.info.description, " ",
          h("a", { href: "/openapi.json" }, "OpenAPI document"), `, version ${document.info.version}.`)),
      ...[...groups].map(([tag, entries]) => h("section", { class: "card", "aria-label": tag },
        h("div", { class: "head" }, h("h2", {}, tag)),
        h("div", { class: "list" }, ...entries.map(operationRow)))),
      jobFields(document)));
  }
}

function operationRow({ path, method, operation }) {
  const parameters = (operation.parameters ?? []).map((p) => p.name);
  const statuses = Object.keys(operation.responses).filter((status) => status !== "default");
  return h("div", { class: "operation" },
    h("div", { class: "call" }, h("span", { class: `method ${method}` }, method.toUpperCase()), h("code", {}, path)),
    h("p", {}, operation.summary),
    h("p", { class: "muted small" }, operation.description ?? ""),
    h("p", { class: "muted small" },
      parameters.length > 0 ? `Parameters: ${parameters.join(", ")}. ` : "", `Answers: ${statuses.join(", ")}.`));
}

/** The fields of a job with what they may hold: what the new-job box points to. */
function jobFields(document) {
  const schemas = document.components.schemas;
  const groups = { JobRequest: "job", WorkloadRequest: "workload", SearchSpace: "space", Budget: "budget", MeasurePlan: "measure", ModelSpec: "model" };
  return h("section", { class: "card", "aria-label": "Fields of a job" },
    h("div", { class: "head" }, h("h2", {}, "Fields of a job")),
    h("div", { class: "body" }, ...Object.entries(groups).map(([schema, name]) => h("details", {},
      h("summary", {}, name),
      h("p", { class: "muted small" }, schemas[schema].description ?? ""),
      h("ul", {}, ...Object.entries(schemas[schema].properties).map(([field, value]) => h("li", {},
        h("code", {}, field), (schemas[schema].required ?? []).includes(field) ? " (required)" : "",
        value.default === undefined || typeof value.default === "object" ? "" : ` — default ${JSON.stringify(value.default)}`)))))));
}

customElements.define("at-docs-page", DocsPage);
