/** What all charts share: Plotly loaded once, colours taken from the page, redrawn when the colour scheme changes. */

import { links } from "../api.js";
import { h } from "../dom.js";

let loading = null;

/** Plotly, fetched when the first chart is drawn: the list of jobs does without it. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = h("script", { src: links.plotly, onload: () => resolve(window.Plotly), onerror: reject });
    document.head.append(script);
  });
  return loading;
}

/** The page's colours, as they are now. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: get("ink"), muted: get("muted"), line: get("line"), surface: get("surface"),
    accent: get("accent"), good: get("good"), bad: get("bad"), sans: get("sans"),
  };
}

function axis(title, c, extra) {
  return {
    title: { text: title, standoff: 10, font: { size: 12, color: c.muted } },
    gridcolor: c.line, zerolinecolor: c.line, linecolor: c.line, tickcolor: c.line,
    tickfont: { size: 11, color: c.muted }, automargin: true, ...extra,
  };
}

/** Names and sentences appear in hover texts, where Plotly understands a little HTML: they are escaped. */
export function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/**
 * Base of the chart elements.  A chart says its `title`, its `caption` and what `figure(data, colours)` gives:
 * `{ traces, x, y, shapes }`, or null while there is nothing to draw.
 */
export class Chart extends HTMLElement {
  #shown = "";

  connectedCallback() {
    this.canvas = h("div", { class: "chart" });
    this.replaceChildren(h("section", { class: "card" },
      h("div", { class: "head" }, h("h2", {}, this.constructor.title)),
      h("div", { class: "body" }, h("figure", { role: "group", "aria-label": this.constructor.title },
        this.canvas, h("figcaption", {}, this.constructor.caption)))));
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.#draw();
    this.scheme.addEventListener("change", this.redraw);
  }

  disconnectedCallback() {
    this.scheme.removeEventListener("change", this.redraw);
    if (this.drawn) window.Plotly?.purge(this.canvas);
  }

  set data(data) {
    const shown = JSON.stringify(data.trials.map((t) => [t.id, t.state, t.measurement?.tokens_per_second]));
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.current = data;
    this.#draw();
  }

  async #draw() {
    if (!this.current) return;
    const c = colours();
    const figure = this.figure(this.current, c);
    if (figure === null) {
      if (!this.drawn) this.canvas.replaceChildren(h("p", { class: "chart-note" }, "Drawn with the first measurement."));
      return;
    }
    let library;
    try {
      library = await plotly();
    } catch {
      this.canvas.replaceChildren(h("p", { class: "chart-note" }, "Plotly could not be loaded. The table has all numbers."));
      return;
    }
    if (!this.drawn) this.canvas.replaceChildren();
    this.drawn = true;
    await library.react(this.canvas, figure.traces, layout(figure, c), { responsive: true, displayModeBar: false });
  }
}

function layout(figure, c) {
  return {
    xaxis: axis(figure.xTitle, c, figure.x), yaxis: axis(figure.yTitle, c, figure.y), shapes: figure.shapes ?? [],
    paper_bgcolor: c.surface, plot_bgcolor: c.surface, font: { family: c.sans, size: 12, color: c.ink },
    margin: { l: 56, r: 12, t: 12, b: 44 }, hovermode: "closest",
    hoverlabel: { bgcolor: c.surface, bordercolor: c.line, font: { family: c.sans, color: c.ink, size: 12 }, align: "left" },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11, color: c.muted } },
    transition: { duration: 0 },
  };
}
