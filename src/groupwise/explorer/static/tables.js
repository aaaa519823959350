// Tables: of values with their 95 % intervals, and those that a report's facts describe.

import { excerpt, h, longText, minus, number, percent, put, shown, signed } from "./dom.js";
import { outcome } from "./pieces.js";

/** Rows of a table that are shown without being asked for. */
const MOST_ROWS = 40;

/** A table in a box that scrolls and that the keyboard reaches. */
export const boxed = (name, head, body) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
  h("table", { class: "values" }, h("thead", {}, head), h("tbody", {}, body)));

export const heads = (names) => h("tr", {}, names.map((name) => (name ? h("th", { scope: "col" }, shown(name)) : h("td", {}))));

/** A share with its interval, in per cent: [value, low, high] or [value]. */
export function share(estimate) {
  if (!estimate || estimate[0] === null) return h("td", { class: "figure" }, "–");
  const [value, low, high] = estimate;
  return h("td", { class: "figure" }, percent(value), low === undefined || low === null ? null : h("small", {}, ` [${minus((100 * low).toFixed(1))}, ${minus((100 * high).toFixed(1))}]`));
}

/** A difference with its interval, in points. */
export function difference(estimate) {
  if (!estimate || estimate[0] === null) return h("td", { class: "figure" }, "–");
  const [value, low, high] = estimate.map((one) => 100 * one);
  return h("td", { class: "figure" }, signed(value, 1), h("small", {}, ` [${signed(low, 1)}, ${signed(high, 1)}]`));
}

export const amount = (value, digits = 4) => h("td", { class: "figure" }, value === null || value === undefined ? "–"
  : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : number(value, digits));

/** A section with a heading and a sentence. */
export const section = (title, note, ...children) => h("section", { class: "piece", "data-section": title }, h("h2", {}, shown(title)),
  note ? h("p", { class: "hint" }, shown(note)) : null, children);

const cell = (one) => h("td", { class: one.value.length > 40 ? "words" : "figure" }, shown(one.value), one.mark ? h("b", { class: one.mark === "↑" ? "rise" : "fall" }, ` ${one.mark}`) : null, one.interval ? h("small", {}, ` ${one.interval}`) : null);

/** A table of a report; `links` leads from the name of a line to an address. */
export function described(value, links = new Map()) {
  if (!value.lines.length) return section(value.title, value.empty || value.note);
  const wide = value.columns.length;
  const groups = value.groups.length ? h("tr", {}, h("td", {}), value.groups.map(([name, size]) => h("th", { scope: "colgroup", colspan: size }, shown(name)))) : null;
  let group = "";
  const rows = value.lines.map((line) => {
    const head = line.group !== group && line.group ? h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: wide + 1 }, shown(line.group))) : null;
    group = line.group;
    const address = links.get(line.name);
    return [head, h("tr", {}, h("th", { scope: "row" }, address ? h("a", { href: address }, shown(line.name)) : shown(line.name), line.about ? h("small", {}, ` ${shown(line.about)}`) : null),
      line.note ? h("td", { colspan: wide }, shown(line.note)) : line.cells.map(cell))];
  });
  const box = boxed(value.title, [groups, heads([value.first, ...value.columns])], rows);
  return section(value.title, value.note, rows.length > MOST_ROWS ? h("details", {}, h("summary", {}, `All ${rows.length} rows`), box) : box,
    value.meanings.length ? h("details", {}, h("summary", {}, "What is shown"), h("ul", {}, value.meanings.map((text) => h("li", {}, shown(text))))) : null);
}

export const tiles = (values) => h("dl", { class: "facts tiles" }, values.map((tile) => h("div", {}, h("dt", {}, shown(tile.name)), h("dd", {}, shown(tile.value)), tile.detail ? h("dd", { class: "detail" }, shown(tile.detail)) : null)));

const answer = (one) => h("section", { class: "card completion" }, h("h2", {}, shown(one.stage), outcome(one.outcome),
  one.share === null ? null : h("small", {}, `${percent(one.share, 0)} of ${one.num_samples} samples are correct`)),
longText(one.text), one.evidence ? h("details", {}, h("summary", {}, "Why the verifier said so"), longText(one.evidence)) : null);

/** A problem and the answers of several models, or of one at several times. */
export const asked = (one, open = false) => h("details", { class: "card asked", open }, h("summary", {}, excerpt(`${one.kind}: ${one.question}`, 300)), one.reference ? h("p", { class: "hint" }, `Reference answer ${excerpt(one.reference, 300)}`) : null,
  h("div", { class: "pair" }, one.answers.map(answer)));

/** Names with their texts, folded. */
export const folded = (title, entries) => (Object.keys(entries).length ? h("details", { class: "piece" }, h("summary", {}, title), h("dl", { class: "settings" }, Object.entries(entries).map(([name, text]) => h("div", {}, h("dt", {}, shown(name)), h("dd", {}, shown(text)))))) : null);

/** Where an exported page has a reason in place of facts. */
export const missing = (root, value, title) => {
  if (!value.error) return false;
  put(root, h("header", { class: "title" }, h("p", { class: "eyebrow" }, title), h("h1", {}, shown(value.name))), h("p", { class: "notice", role: "status" }, shown(value.error)));
  return true;
};
