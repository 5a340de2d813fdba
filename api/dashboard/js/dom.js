/** Builds elements. Text only ever becomes text: there is no way to pass markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("p", { class: "muted" }, "text", child, null)`.
 * Keys starting with "on" are listeners; true sets an empty attribute; null, undefined and false leave it out.
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG elements. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A bar whose parts have a width in percent: `meter([["good", 40], ["bad", 10]])`. */
export function meter(parts, { thin = false, label = null } = {}) {
  const attributes = label === null ? { "aria-hidden": "true" } : { role: "img", "aria-label": label };
  const bar = h("div", { class: thin ? "meter thin" : "meter", ...attributes });
  for (const [kind, percent] of parts) {
    const part = h("span", { class: kind });
    part.style.width = `${Math.max(0, Math.min(100, percent))}%`;
    bar.append(part);
  }
  return bar;
}

const ICONS = {
  check: ["M3.5 8.5l3 3 6-7"],
  cross: ["M4 4l8 8M12 4l-8 8"],
  pause: ["M5.5 3.5v9M10.5 3.5v9"],
  clock: ["M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2z", "M8 4.8V8l2.2 1.6"],
  turning: ["M13.5 8a5.5 5.5 0 1 1-3.4-5.1"],
  stop: ["M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2z", "M4 4l8 8"],
  copy: ["M5.5 5.5h8v8h-8z", "M10.5 5.5v-3h-8v8h3"],
  download: ["M8 2v8M4.5 7L8 10.5 11.5 7", "M2.5 13.5h11"],
  plus: ["M8 3v10M3 8h10"],
  chevron: ["M6 4l4 4-4 4"],
};

/** A line icon by name; decoration only, the word beside it says the same. */
export function icon(name, extra = "") {
  const paths = ICONS[name].map((d) => svg("path", { d }));
  return svg(
    "svg",
    {
      class: `icon ${name === "turning" ? "turning" : ""} ${extra}`.trim(), viewBox: "0 0 16 16", fill: "none",
      stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round",
      "aria-hidden": "true",
    },
    ...paths,
  );
}

/** Grey bars while something loads. */
export function skeleton(lines) {
  const widths = [62, 88, 74, 81, 55];
  const bars = Array.from({ length: lines }, (_, i) => {
    const bar = h("span", { class: "skeleton" });
    bar.style.width = `${widths[i % widths.length]}%`;
    return bar;
  });
  return h("div", { class: "body", role: "status" }, h("span", { class: "hidden-visually" }, "Loading"), ...bars);
}
