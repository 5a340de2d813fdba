/** The only file that knows addresses: of the API, of event streams and of pages. */

const ROOT = "/api/v1";
const TIMEOUT_MS = 30_000;

/** A refusal of the service: `code` is stable, `errors` names wrong fields. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `the service answered ${status}`);
    this.status = status;
    this.code = body.code ?? `http-${status}`;
    this.errors = body.errors ?? [];
    this.rejections = body.rejections ?? null;
    this.examples = body.examples ?? [];
    this.requestId = body.request_id ?? "";
  }
}

/** The service cannot be reached at all. */
export class Offline extends Error {
  constructor() {
    super("The service does not answer. It may be restarting; this page tries again by itself.");
  }
}

async function send(path, { method = "GET", body = undefined } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(ROOT + path, { method, headers, body, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch {
    throw new Offline();
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy in between may answer with a page of its own.
  }
  throw new Problem(response.status, problem);
}

async function json(path, options) {
  return (await send(path, options)).json();
}

const job = (id) => `/jobs/${encodeURIComponent(id)}`;
const trial = (id) => `/trials/${encodeURIComponent(id)}`;

export const api = {
  jobs: ({ cursor = "", limit = 50 } = {}) => json(`/jobs?limit=${limit}&cursor=${encodeURIComponent(cursor)}`),
  job: (id) => json(job(id)),
  trials: (id) => json(`${job(id)}/trials`),
  trial: (id) => json(trial(id)),
  best: (id) => json(`${job(id)}/best`),
  workers: () => json("/workers"),
  log: async (id, rank) => (await send(`${trial(id)}/logs?rank=${rank}`)).text(),
  bundle: (id, launcher) => json(`${job(id)}/export?format=json&launcher=${launcher}`),
  /** `text` is the job as the user wrote it: the service reads it, so its words about it are the right ones. */
  submit: (text) => json("/jobs", { method: "POST", body: text }),
  estimate: (text, limit) => json(`/estimates?limit=${limit}`, { method: "POST", body: text }),
  steer: (id, action) => json(`${job(id)}/${action}`, { method: "POST" }),
  remove: (id) => send(job(id), { method: "DELETE" }),
  openapi: async () => (await fetch("/openapi.json")).json(),
};

export const streams = {
  all: `${ROOT}/events?after=now`,
  job: (id) => `${ROOT}${job(id)}/events?after=now`,
};

export const links = {
  jobs: "/",
  job: (id) => `/jobs/${encodeURIComponent(id)}`,
  zip: (id, launcher) => `${ROOT}${job(id)}/export?format=zip&launcher=${launcher}`,
  plotly: "/assets/vendor/plotly.min.js",
};

/** What page an address is: `{ page: "job", id }` or `{ page: "jobs" }`. */
export function route(pathname) {
  const match = /^\/jobs\/([^/]+)$/.exec(pathname);
  return match ? { page: "job", id: decodeURIComponent(match[1]) } : { page: "jobs" };
}
