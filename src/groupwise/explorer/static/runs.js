// All runs that the command was given.

import { h, percent, put, shown } from "./dom.js";
import { notices } from "./pieces.js";

export async function runs(root, _, context) {
  const { value, changed } = await context.facts("runs");
  if (!context.isCurrent() || (context.isPoll && !changed)) { context.poll(); return; }
  if (!value.length) { location.hash = "/learn"; return; }
  put(root, h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Runs"), h("h1", {}, value.length === 1 ? "One run" : `${value.length} runs`)),
    h("div", { class: "grid", vars: { "margin-top": "1.4rem" } }, value.map((run) => h("section", { class: "card" },
      h("h2", {}, h("a", { href: `#/run/${run.index}` }, shown(run.name))),
      h("p", {}, `${run.algorithm ?? "unknown algorithm"} · ${run.done} of ${run.num_steps ?? "?"} steps · ${run.finished ? "finished" : "unfinished"}`),
      run.pass_at_1 === null ? null : h("p", { class: "hint" }, `last dev pass@1 ${percent(run.pass_at_1)}`), notices(run.notices)))));
  context.poll();
}
