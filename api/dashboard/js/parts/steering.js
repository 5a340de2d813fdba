/** `<at-steering>`: pause, resume, cancel, delete. What cannot be undone asks once more. */

import { api, links } from "../api.js";
import { h } from "../dom.js";
import { FINISHED } from "../states.js";

const ASK_AGAIN_MS = 4000;

class Steering extends HTMLElement {
  #shown = "";

  set data({ job }) {
    const shown = `${job.state} ${job.desired_state}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.job = job;
    this.message = h("span", { class: "small muted", role: "status" });
    this.replaceChildren(h("div", { class: "buttons" }, this.message, ...this.#buttons()));
  }

  #buttons() {
    const { state, desired_state: desired } = this.job;
    if (FINISHED.includes(state)) return [this.#careful("Delete", "Delete for good?", () => this.#delete())];
    if (state === "cancelling" || desired === "cancel") return [h("button", { disabled: true }, "Cancelling…")];
    const paused = state === "paused" || desired === "pause";
    return [
      h("button", { onclick: () => this.#steer(paused ? "resume" : "pause") }, paused ? "Resume" : "Pause"),
      this.#careful("Cancel job", "Really cancel?", () => this.#steer("cancel")),
    ];
  }

  #careful(text, question, action) {
    let timer = 0;
    const button = h("button", {
      class: "danger",
      onclick: () => {
        clearTimeout(timer);
        if (button.textContent === question) {
          action();
          return;
        }
        button.textContent = question;
        timer = setTimeout(() => { button.textContent = text; }, ASK_AGAIN_MS);
      },
    }, text);
    return button;
  }

  async #steer(action) {
    await this.#try(async () => {
      const job = await api.steer(this.job.id, action);
      this.data = { job };
    });
  }

  async #delete() {
    await this.#try(async () => {
      await api.remove(this.job.id);
      location.assign(links.jobs);
    });
  }

  async #try(action) {
    try {
      await action();
    } catch (error) {
      this.message.textContent = error.message;
    }
  }
}

customElements.define("at-steering", Steering);
