/** Chooses the page by the address. Each page is an element that loads and draws itself. */

import { route } from "./api.js";
import { h } from "./dom.js";
import "./live.js";
import "./pages/job.js";
import "./pages/jobs.js";

const { page, id } = route(location.pathname);
document.getElementById("content").replaceChildren(
  page === "job" ? h("at-job-page", { "job-id": id }) : h("at-jobs-page"),
);
