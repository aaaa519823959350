// A pipeline: the model that each stage made of which others, what each can do, and the same problems answered by each.

import { h, put, s, shown } from "./dom.js";
import { crumbs, notices } from "./pieces.js";
import { headlineChart } from "./panels.js";
import { asked, described, missing, section, tiles } from "./tables.js";

const [WIDTH, HEIGHT, GAP, ROW, EDGE] = [136, 52, 46, 66, 6];
const MOST_LABEL = 18;
const fitted = (text) => shown(text.length > MOST_LABEL ? `${text.slice(0, MOST_LABEL - 1)}…` : text);

/** Boxes in columns, each to the right of all that it was made of: {name: {box, column, row}}. */
export function layers(boxes) {
  const placed = new Map();
  const sizes = [];
  for (const box of boxes) {
    const column = Math.max(-1, ...box.inputs.filter((name) => placed.has(name)).map((name) => placed.get(name).column)) + 1;
    sizes[column] = (sizes[column] ?? 0) + 1;
    placed.set(box.name, { box, column, row: sizes[column] - 1 });
  }
  const most = Math.max(...sizes);
  for (const one of placed.values()) one.row += (most - sizes[one.column]) / 2;
  return { placed, columns: sizes.length, rows: most };
}

function picture(boxes, links) {
  const { placed, columns, rows } = layers(boxes);
  const at = ({ column, row }) => [EDGE + column * (WIDTH + GAP), EDGE + row * ROW];
  const arrows = [...placed.values()].flatMap((target) => target.box.inputs.filter((name) => placed.has(name)).map((name) => {
    const [[x, y], [toX, toY]] = [at(placed.get(name)), at(target)];
    const [fromX, fromY, end] = [x + WIDTH, y + HEIGHT / 2, toY + HEIGHT / 2];
    const bend = Math.max((toX - fromX) / 2, 16);
    return [s("path", { class: "arrow", d: `M${fromX} ${fromY}C${fromX + bend} ${fromY} ${toX - bend} ${end} ${toX - 7} ${end}` }), s("path", { class: "arrow head", d: `M${toX} ${end}l-8 -4v8z` })];
  }));
  const draw = (one) => {
    const [x, y] = at(one);
    const [middle, box] = [x + WIDTH / 2, one.box];
    const drawn = s("g", { class: `box ${box.kind}` }, s("title", {}, shown(`${box.label}: ${box.detail}`)), s("rect", { x, y, width: WIDTH, height: HEIGHT, rx: box.kind.startsWith("data") ? 1 : 9 }),
      s("text", { x: middle, y: y + 22, "text-anchor": "middle" }, fitted(box.label)), s("text", { class: "detail", x: middle, y: y + 39, "text-anchor": "middle" }, fitted(box.detail)));
    return links.has(box.name) ? s("a", { href: links.get(box.name), "aria-label": shown(`${box.label}: ${box.detail}`) }, drawn) : drawn;
  };
  const [width, height] = [columns * (WIDTH + GAP) - GAP + 2 * EDGE, (rows - 1) * ROW + HEIGHT + 2 * EDGE];
  const words = boxes.filter((box) => box.inputs.length).map((box) => `${box.name} from ${box.inputs.join(", ")}`).join("; ");
  return h("div", { class: "scroll lineage", tabindex: 0, role: "region", "aria-label": "lineage" }, s("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": shown(words || "no stages"),
  }, arrows, [...placed.values()].map(draw)));
}

/** The main curve of every stage that trains; they come one after the other, after the page. */
async function curves(place, stages, context) {
  for (const stage of stages.filter((one) => one.run !== null)) {
    const { value } = await context.facts(`runs/${stage.run}`);
    if (!context.isCurrent()) return;
    const chart = headlineChart(value);
    if (chart) place.append(h("section", { class: "card metric", "data-stage": stage.name }, h("h3", {}, h("a", { href: `#/run/${stage.run}` }, shown(stage.name))), chart));
  }
}

export async function pipeline(root, [index], context) {
  const { value, changed } = await context.facts(`results/${index}`);
  if (!context.isCurrent()) return;
  if (missing(root, value, "Pipeline")) return;
  if (context.isPoll && (!changed || root.querySelector("details[open], :focus"))) { context.poll(); return; }
  const scroll = scrollY;
  const links = new Map(["run", "budget"].flatMap((kind) => value.stages.filter((stage) => stage[kind] !== null).map((stage) => [stage.name, `#/${kind}/${stage[kind]}`])));
  const alarms = Object.entries(value.alarms).map(([name, count]) => `${name} (${count})`);
  const [stages, training, ...others] = value.tables;
  const trained = h("div", { class: "grid", vars: { "margin-top": "1rem" } });
  put(root, crumbs([["Runs", "#/"], [value.name, null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Pipeline"), h("h1", {}, shown(value.name)), h("p", {}, shown(value.description))),
    h("div", { vars: { "margin-top": "1rem" } }, notices(value.notices), alarms.length ? notices([`Alarms of reward hacking: a second verifier rejects what training pays, in ${alarms.join(", ")}; see Alarms.`]) : null),
    tiles(value.tiles),
    section("Lineage", "An arrow leads from what was used to what was made of it. Round boxes are models with their pass@1 (reward models with their accuracy on held-out pairs), square ones data; dashed: not finished, or from outside.", picture(value.boxes, links)),
    described(stages, links), described(training, links), trained,
    value.problems.length ? section("The same problems, answered by every model", "The first sample of each model; the problems are chosen by their place, not by the answers.", value.problems.map((one) => asked(one))) : null,
    others.map((one) => described(one, links)),
    value.recipe ? h("details", { class: "piece" }, h("summary", {}, "Settings (pipeline.toml)"), h("pre", { class: "command", tabindex: 0 }, shown(value.recipe))) : null);
  if (context.isPoll) scrollTo(0, scroll);
  if (!value.done) context.poll();
  await curves(trained, value.stages, context);
}
