// Tables of values with their 95 % intervals, as every result has them.

import { h, minus, number, percent, put, shown, signed } from "./dom.js";

/** A table in a box of its own that scrolls and that the keyboard reaches. */
export const boxed = (name, head, body) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
  h("table", { class: "values" }, h("thead", {}, head), h("tbody", {}, body)));

export const heads = (names) => h("tr", {}, names.map((name) => h("th", { scope: "col" }, shown(name))));

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
export const section = (title, note, ...children) => h("section", { class: "piece" }, h("h2", {}, shown(title)),
  note ? h("p", { class: "hint" }, shown(note)) : null, children);

/** Where an exported page has a reason in place of facts. */
export const missing = (root, value, title) => {
  if (!value.error) return false;
  put(root, h("header", { class: "title" }, h("p", { class: "eyebrow" }, title), h("h1", {}, shown(value.name))), h("p", { class: "notice", role: "status" }, shown(value.error)));
  return true;
};
