// A pipeline: which stage made what of what, what every model can do, and the same problems answered by each.

import { h, longText, percent, put, s, shown } from "./dom.js";
import { crumbs, notices, outcome } from "./pieces.js";
import { boxed, missing, section } from "./tables.js";

/** Rows of a table that are shown without being asked for. */
const MOST_ROWS = 40;

function picture(drawn) {
  return h("div", { class: "scroll lineage", tabindex: 0, role: "region", "aria-label": "which stage made what" }, s("svg", {
    viewBox: `0 0 ${drawn.width} ${drawn.height}`, width: drawn.width, height: drawn.height, role: "img", "aria-label": drawn.words,
  }, drawn.arrows.map(([kind, path]) => s("path", { class: `arrow ${kind}`, d: path })), drawn.boxes.map((box) => s("g", { class: `box ${box.kind}` }, s("title", {}, shown(box.title)),
    box.paths.map((path) => s("path", { d: path })), box.rounded.map(([x, y]) => s("rect", { x, y, width: box.width, height: box.height, rx: 9 })),
    box.texts.map(([kind, x, y, words]) => s("text", { class: kind, x, y, "text-anchor": "middle" }, shown(words)))))));
}

const cell = (one) => h("td", { class: "figure" }, shown(one.value), one.mark ? h("b", { class: one.mark === "↑" ? "rise" : "fall" }, ` ${one.mark}`) : null, one.interval ? h("small", {}, ` ${one.interval}`) : null);

function table(value, links) {
  if (!value.lines.length) return section(value.title, value.empty || value.note);
  const wide = value.columns.length;
  const groups = value.groups.length ? h("tr", {}, h("td", {}), value.groups.map(([name, size]) => h("th", { scope: "colgroup", colspan: size }, shown(name)))) : null;
  let group = "";
  const rows = value.lines.map((line) => {
    const head = line.group !== group && line.group ? h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: wide + 1 }, shown(line.group))) : null;
    group = line.group;
    const run = links.get(line.name);
    const name = run === undefined ? shown(line.name) : h("a", { href: `#/run/${run}` }, shown(line.name));
    return [head, h("tr", {}, h("th", { scope: "row" }, name, line.about ? h("small", {}, ` ${shown(line.about)}`) : null),
      line.note ? h("td", { colspan: wide }, shown(line.note)) : line.cells.map(cell))];
  });
  const box = boxed(value.title, [groups, h("tr", {}, [value.first, ...value.columns].map((name) => (name ? h("th", { scope: "col" }, shown(name)) : h("td", {}))))], rows);
  return section(value.title, value.note, rows.length > MOST_ROWS ? h("details", {}, h("summary", {}, `All ${rows.length} rows`), box) : box,
    value.meanings.length ? h("details", {}, h("summary", {}, "What is shown"), h("ul", {}, value.meanings.map((text) => h("li", {}, shown(text))))) : null);
}

const answer = (one) => h("section", { class: "card completion" }, h("h2", {}, shown(one.stage), outcome(one.outcome),
  one.share === null ? null : h("small", {}, `${percent(one.share, 0)} of ${one.samples} samples are correct`)),
longText(one.text), one.evidence ? h("details", {}, h("summary", {}, "Why the verifier said so"), longText(one.evidence)) : null);

const problem = (one) => h("details", { class: "card asked" }, h("summary", {}, shown(`${one.kind}: ${one.question.slice(0, 300)}`)), one.reference ? h("p", { class: "hint" }, `Reference answer ${shown(one.reference.slice(0, 300))}`) : null,
  h("div", { class: "pair" }, one.answers.map(answer)));

export async function pipeline(root, [index], context) {
  const { value, changed } = await context.facts(`results/${index}`);
  if (!context.isCurrent()) return;
  if (missing(root, value, "Pipeline")) return;
  if (context.isPoll && (!changed || root.querySelector("details[open], :focus"))) { context.poll(); return; }
  const scroll = scrollY;
  const links = new Map(value.stages.filter((stage) => stage.run !== null).map((stage) => [stage.name, stage.run]));
  const alarms = Object.entries(value.alarms).map(([name, count]) => `${name} (${count})`);
  const [first, ...others] = value.tables;
  put(root, crumbs([["Runs", "#/"], [value.name, null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Pipeline"), h("h1", {}, shown(value.name)), h("p", {}, shown(value.description))),
    h("div", { vars: { "margin-top": "1rem" } }, notices(value.notices), alarms.length ? notices([`A second verifier rejects what training pays, in ${alarms.join(", ")}: see Alarms.`]) : null),
    h("dl", { class: "facts" }, value.tiles.map((tile) => h("div", {}, h("dt", {}, shown(tile.name)), h("dd", {}, shown(tile.value)), tile.detail ? h("dd", { class: "detail" }, shown(tile.detail)) : null))),
    section("Lineage", "What was made of what. In the tables below, the name of a stage that trained leads to its run.", picture(value.picture)),
    table(first, links), value.problems.length ? section("The same problems, answered by every model", "The first sample of each model; the problems are chosen by their place, not by the answers.", value.problems.map(problem)) : null,
    others.map((one) => table(one, links)));
  if (context.isPoll) scrollTo(0, scroll);
  if (!value.done) context.poll();
}
