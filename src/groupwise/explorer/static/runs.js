// All runs that the command was given.

import { h, percent, put, shown } from "./dom.js";
import { notices, progress } from "./pieces.js";

const KINDS = { pipeline: "Pipeline: stages, lineage, every model on the same problems", budget: "Test-time compute: accuracy over tokens", process: "Process reward models side by side" };

const result = (one) => h("section", { class: "card" }, h("h2", {}, h("a", { href: `#/${one.kind}/${one.index}` }, shown(one.name))), h("p", {}, KINDS[one.kind]), notices(one.notices));

export async function runs(root, _, context) {
  const [{ value, changed }, results] = await Promise.all([context.facts("runs"), context.facts("results")]);
  if (!context.isCurrent() || (context.isPoll && !changed && !results.changed)) { context.poll(); return; }
  if (!value.length && !results.value.length) { location.hash = "/learn"; return; }
  put(root, h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Runs"), h("h1", {}, value.length === 0 ? "No run" : value.length === 1 ? "One run" : `${value.length} runs`)),
    results.value.length ? [h("section", { class: "results" }, h("h2", {}, "Results"), h("div", { class: "grid" }, results.value.map(result))), h("h2", {}, "Runs")] : null,
    h("div", { class: "grid", vars: { "margin-top": results.value.length ? "0" : "1.4rem" } }, value.map((run) => h("section", { class: "card" },
      h("h2", {}, h("a", { href: `#/run/${run.index}` }, shown(run.name))),
      h("p", {}, `${run.algorithm ?? "unknown algorithm"} · ${progress(run)} steps · ${run.finished ? "finished" : "unfinished"}`),
      run.pass_at_1 === null ? null : h("p", { class: "hint" }, `last dev pass@1 ${percent(run.pass_at_1)}`), notices(run.notices)))));
  context.poll();
}
