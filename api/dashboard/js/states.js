/** How a state is shown: an icon and a word, in one of five tones. */

import { h, icon } from "./dom.js";

const STATES = {
  queued: ["clock", "", "queued"],
  launching: ["turning", "live", "starting"],
  running: ["turning", "live", "running"],
  paused: ["pause", "warn", "paused"],
  cancelling: ["turning", "warn", "cancelling"],
  cancelled: ["stop", "", "cancelled"],
  completed: ["check", "good", "completed"],
  succeeded: ["check", "good", "measured"],
  failed: ["cross", "bad", "failed"],
};

export const FINISHED = ["completed", "failed", "cancelled"];

/** The badge of a job's or trial's state. */
export function stateBadge(state, { pill = false, text = null } = {}) {
  const [name, tone, word] = STATES[state] ?? ["clock", "", state];
  return h("span", { class: `state ${tone} ${pill ? "pill" : ""}`.trim() }, icon(name), text ?? word);
}
