/** `<at-scatter-chart>`: what was estimated against what was measured; on the diagonal both agree. */

import { number, signedPercent } from "../format.js";
import { Chart, escaped } from "./plot.js";

class ScatterChart extends Chart {
  static title = "Estimated against measured";
  static caption = "On the line the estimate was exact; below it, it was too low.";

  figure({ trials, best }, c) {
    const both = trials.filter((t) => t.measurement && t.estimate);
    if (both.length === 0) return null;
    const measured = both.map((t) => t.measurement.tokens_per_second);
    const estimated = both.map((t) => t.estimate.tokens_per_second);
    const [min, max] = [Math.min(...measured, ...estimated), Math.max(...measured, ...estimated)];
    const margin = Math.max(0.06 * (max - min), 0.02 * max);
    const [low, top] = [min - margin, max + margin];
    return {
      xTitle: "measured tokens/s", yTitle: "estimated tokens/s",
      x: { range: [low, top] }, y: { range: [low, top] },
      traces: [
        { name: "exact", x: [low, top], y: [low, top], mode: "lines", line: { color: c.muted, width: 1, dash: "dot" }, hoverinfo: "skip" },
        {
          name: "trial", x: measured, y: estimated, mode: "markers",
          marker: {
            size: 9, line: { color: c.surface, width: 1.5 },
            color: both.map((t) => (t.id === best?.trial_id ? c.good : c.accent)),
          },
          text: both.map((t, i) => `trial ${t.number} · ${escaped(t.key)}<br>measured ${number(measured[i])}`
            + `<br>estimated ${number(estimated[i])} (${signedPercent(estimated[i] / measured[i] - 1)})`),
          hovertemplate: "%{text}<extra></extra>",
        },
      ],
    };
  }
}

customElements.define("at-scatter-chart", ScatterChart);
