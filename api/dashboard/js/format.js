/** How numbers, times and layouts are written for people. Values come with their units in the names. */

const LOCALE = "en-US";
const STEPS = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const COUNTS = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];

/** 12345.6 is "12,346", 3.14159 is "3.14": three significant digits, more only for whole numbers. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString(LOCALE);
  return value.toLocaleString(LOCALE, { maximumSignificantDigits: 3 });
}

/** 1.3e9 is "1.30B". */
export function count(value) {
  for (const [size, suffix] of COUNTS) if (value >= size) return `${(value / size).toPrecision(3)}${suffix}`;
  return String(value);
}

/** 3221225472 is "3.00 GiB". */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of STEPS) if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  return `${Math.round(value)} B`;
}

/** 0.0123 is "12.3 ms". */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1e-3) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1e3).toPrecision(3)} ms`;
  if (value < 120) return `${value.toPrecision(3)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${(value / 3600).toFixed(1)} h` : `${Math.round(value / 86400)} days`;
}

/** 99.4 is "99 s": a time that passes needs no decimals. */
export function duration(value) {
  return value < 120 ? `${Math.round(value)} s` : seconds(value);
}

/** 0.042 is "+4.2 %". */
export function signedPercent(ratio) {
  const percent = ratio * 100;
  const text = Math.abs(percent) >= 10 ? percent.toFixed(0) : percent.toFixed(1);
  return `${percent >= 0 ? "+" : "−"}${text.replace("-", "")} %`;
}

/** "3 min ago". */
export function ago(iso, now = Date.now()) {
  const past = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (past < 45) return "just now";
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  if (past < 129600) return `${Math.round(past / 3600)} h ago`;
  return `${Math.round(past / 86400)} days ago`;
}

/** A time with its zone, for the title of a relative one. */
export function moment(iso) {
  return new Date(iso).toLocaleString(LOCALE, { dateStyle: "medium", timeStyle: "long" });
}

/** A layout as a sentence: what is split how, then what is switched on. */
export function layoutInWords(config) {
  const parts = [];
  if (config.tp > 1) parts.push(`${config.tp}-way tensor parallel`);
  if (config.pp > 1) parts.push(`${config.pp} pipeline stages`);
  if (config.dp > 1) parts.push(`${config.dp}-way data parallel`);
  if (config.cp > 1) parts.push(`${config.cp}-way context parallel`);
  if (config.ep > 1) parts.push(`${config.ep}-way expert parallel`);
  if (parts.length === 0) parts.push("one device");
  parts.push(`micro-batch\u00a0${config.micro_batch_size}`);
  return [parts.join(", "), ...switches(config)].join(", ");
}

function switches(config) {
  const on = [];
  if (config.virtual_stages > 1) on.push(`${config.virtual_stages} virtual stages`);
  if (config.sequence_parallel) on.push("sequence parallel");
  if (config.zero_stage > 0) on.push(`ZeRO ${config.zero_stage}`);
  if (config.recompute !== "none") on.push(`${config.recompute} recompute`);
  if (config.overlap_grad_reduce) on.push("gradients overlapped");
  if (config.overlap_param_gather) on.push("parameters overlapped");
  return on;
}

/** "4 × cpu", "2 × 8 H100". */
export function devices(cluster) {
  const each = `${cluster.devices_per_node} × ${cluster.device.name}`;
  return cluster.nodes > 1 ? `${cluster.nodes} nodes of ${each}` : each;
}

/** "heads_divisible_by_tp" is "heads divisible by tp". */
export function words(code) {
  return code.replaceAll("_", " ");
}

/** Trials that ended, and how many there may be. */
export function progress(job) {
  const done = job.trials.succeeded + job.trials.failed + job.trials.cancelled;
  return { done, total: Math.max(done, Math.min(job.spec.budget.max_trials, job.candidates)) };
}
