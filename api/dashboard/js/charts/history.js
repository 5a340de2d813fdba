/** `<at-history-chart>`: throughput of each trial in the order they were run, and the best so far. */

import { number, words } from "../format.js";
import { Chart, escaped } from "./plot.js";

class HistoryChart extends Chart {
  static title = "Throughput by trial";
  static caption = "Every number is in the table of layouts below.";

  figure({ trials }, c) {
    const measured = trials.filter((t) => t.measurement);
    if (measured.length === 0) return null;
    const failed = trials.filter((t) => t.state === "failed");
    let best = 0;
    const bestSoFar = trials.filter((t) => t.measurement || t.state === "failed").map((trial) => {
      best = Math.max(best, trial.measurement?.tokens_per_second ?? 0);
      return { x: trial.number, y: best || null };
    });
    const text = (t) => `trial ${t.number} · ${escaped(t.key)}`;
    return {
      xTitle: "trial", yTitle: "tokens/s",
      x: { dtick: trials.length <= 12 ? 1 : undefined, range: [-0.6, trials.at(-1).number + 0.6], zeroline: false },
      y: { rangemode: "tozero" },
      traces: [
        {
          name: "best so far", x: bestSoFar.map((p) => p.x), y: bestSoFar.map((p) => p.y), mode: "lines",
          line: { shape: "hv", color: c.good, width: 2 }, hoverinfo: "skip",
        },
        {
          name: "measured", x: measured.map((t) => t.number), y: measured.map((t) => t.measurement.tokens_per_second),
          mode: "markers", marker: { color: c.accent, size: 9, line: { color: c.surface, width: 1.5 } },
          text: measured.map((t) => `${text(t)}<br>${number(t.measurement.tokens_per_second)} tokens/s`),
          hovertemplate: "%{text}<extra></extra>",
        },
        {
          name: "failed", x: failed.map((t) => t.number), y: failed.map(() => 0), mode: "markers", cliponaxis: false,
          marker: { color: c.bad, symbol: "x", size: 9 }, visible: failed.length > 0,
          text: failed.map((t) => `${text(t)}<br>${words(t.failure?.kind ?? "failed")}`),
          hovertemplate: "%{text}<extra></extra>",
        },
      ],
    };
  }
}

customElements.define("at-history-chart", HistoryChart);
