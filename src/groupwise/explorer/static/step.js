// A step or an evaluation: its groups, its rewards, and a list of all completions that stays quick with ten thousand.

import { histogram } from "./chart.js";
import { h, number, percent, put, shown, signed } from "./dom.js";
import { crumbs, notices, placeName } from "./pieces.js";

const ROW = 40;
const ORDERS = {
  "as recorded": (a, b) => a.order - b.order,
  "largest absolute advantage": (a, b) => Math.abs(b.advantage ?? 0) - Math.abs(a.advantage ?? 0),
  "highest reward": (a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity),
  "lowest reward": (a, b) => (a.reward ?? Infinity) - (b.reward ?? Infinity),
  longest: (a, b) => (b.length ?? 0) - (a.length ?? 0),
  shortest: (a, b) => (a.length ?? 0) - (b.length ?? 0),
};

/** Rows from columns, once. */
function rowsOf(value) {
  const { columns, groups } = value;
  return columns.sample.map((sample, i) => ({
    order: i, sample, group: groups[columns.group[i]], outcome: columns.outcome[i], reward: columns.reward[i],
    advantage: columns.advantage[i], length: columns.length[i], finish: columns.finish[i], text: columns.text[i],
  }));
}

function virtual(rows, href) {
  const spacer = h("div", { class: "spacer" });
  const box = h("div", { class: "virtual", tabindex: 0, role: "region", "aria-label": "completions" },
    h("div", { class: "row head" }, ["problem", "#", "outcome", "reward", "Â", "tokens", "text"].map((name) => h("span", {}, name))), spacer);
  let drawn = "";
  let current = rows;
  const draw = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 6);
    const last = Math.min(current.length, first + Math.ceil((box.clientHeight || 700) / ROW) + 12);
    if (drawn === `${first}-${last}`) return;
    drawn = `${first}-${last}`;
    const focused = document.activeElement?.dataset?.row;
    put(spacer, current.slice(first, last).map((row, k) => h("a", {
      class: "row", href: href(row), "data-row": first + k, vars: { top: `${(first + k) * ROW}px` },
    }, h("span", {}, shown(row.group.problem)), h("span", {}, String(row.sample)), h("span", {}, row.outcome), h("span", {}, number(row.reward)),
    h("span", {}, signed(row.advantage)), h("span", {}, number(row.length)), h("span", { dir: "auto" }, shown(row.text)))));
    if (focused !== undefined) spacer.querySelector(`[data-row="${focused}"]`)?.focus({ preventScroll: true });
  };
  box.addEventListener("scroll", draw);
  box.addEventListener("keydown", (event) => {
    const at = Number(document.activeElement?.dataset?.row ?? -1);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: current.length - 1 }[event.key];
    if (next === undefined || next < 0 || next >= current.length) return;
    event.preventDefault();
    if ((next + 2) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (next + 2) * ROW - box.clientHeight;
    if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
    draw();
    spacer.querySelector(`[data-row="${next}"]`)?.focus({ preventScroll: true });
  });
  return { box, show: (next) => { current = next; drawn = ""; spacer.style.height = `${Math.max(next.length, 1) * ROW}px`; box.scrollTop = 0; draw(); } };
}

function groupTable(value, base) {
  const isTraining = value.place.step !== null; // an evaluation learns from no group
  const names = ["problem", "right", "reward", "spread", "length", "truncated", isTraining && "signal"].filter(Boolean);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "groups" }, h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, value.groups.slice(0, 500).map((group) => h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `${base}/${group.id}` }, shown(group.problem))),
      h("td", { class: "figure" }, `${group.num_correct} of ${group.num_judged}`), h("td", { class: "figure" }, number(group.reward)),
      h("td", { class: "figure" }, number(group.reward_std)), h("td", { class: "figure" }, number(group.length)),
      h("td", { class: "figure" }, percent(group.num_truncated / group.num_completions, 0)),
      isTraining && h("td", {}, group.discarded ? h("span", { class: "tag" }, `discarded: ${shown(group.discarded)}`) : group.flat ? h("span", { class: "tag" }, `none: all ${group.flat}`) : "yes"))))),
  value.groups.length > 500 ? h("p", { class: "hint" }, `${value.groups.length - 500} more groups; find them in the list of completions.`) : null);
}

/** How each part of the reward is spread, as it is paid; one part alone is the reward itself. */
function partCards(parts) {
  const names = Object.keys(parts);
  if (names.length < 2) return null;
  return [h("h2", { vars: { "margin-top": "1.6rem" } }, "Rewards by part"),
    h("div", { class: "grid", id: "parts" }, names.map((name) => {
      const paid = parts[name].filter((value) => typeof value === "number");
      const mean = paid.reduce((sum, value) => sum + value, 0) / paid.length;
      return h("section", { class: "card" }, h("h3", {}, shown(name.slice(0, 80))), histogram(parts[name], shown(name.slice(0, 80))),
        h("p", { class: "hint" }, `mean ${number(mean, 3)} of ${paid.length.toLocaleString("en")} completions`,
          paid.every((value) => value === paid[0]) ? ", the same for all" : null));
    }))];
}

export async function step(root, [run, place], context) {
  const { value } = await context.facts(`runs/${run}/places/${place}`);
  if (!context.isCurrent()) return;
  const rows = rowsOf(value);
  const base = `#/run/${run}/at/${place}`;
  const list = virtual(rows, (row) => `${base}/${row.group.id}/${row.sample}`);
  const count = h("p", { class: "hint", "aria-live": "polite", id: "count" });
  const state = { outcome: context.query.get("outcome") ?? "", order: context.query.get("order") ?? "as recorded", q: context.query.get("q") ?? "" };
  if (!Object.hasOwn(ORDERS, state.order)) state.order = "as recorded";
  const apply = () => {
    const wanted = state.q.toLowerCase();
    const kept = rows.filter((row) => (!state.outcome || row.outcome === state.outcome)
      && (!wanted || row.text.toLowerCase().includes(wanted) || row.group.problem.toLowerCase().includes(wanted))).sort(ORDERS[state.order]);
    count.textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} completions`;
    list.show(kept);
  };
  const set = (name) => (event) => { state[name] = event.target.value; context.query.set(name, event.target.value); context.replace(context.query); apply(); };
  const outcomes = [...new Set(rows.map((row) => row.outcome))];
  const select = (name, label, options) => h("label", {}, label, h("select", { id: `pick-${name}`, onchange: set(name) },
    options.map(([key, text]) => h("option", { value: key, selected: key === state[name] }, text))));
  const at = value.steps.indexOf(place);
  put(root, crumbs([["Runs", "#/"], [value.run, `#/run/${run}`], [placeName(value.place), null]]),
    h("header", { class: "title" }, h("p", { class: "eyebrow" }, value.place.step === null ? "Evaluation" : "Training"), h("h1", {}, shown(placeName(value.place))),
      h("p", {}, at > 0 ? h("a", { href: `#/run/${run}/at/${value.steps[at - 1]}` }, "← previous step") : null, " ",
        at >= 0 && at + 1 < value.steps.length ? h("a", { href: `#/run/${run}/at/${value.steps[at + 1]}` }, "next step →") : null)),
    h("div", { vars: { "margin-top": "1rem" } }, notices(value.notices)),
    h("div", { class: "grid" }, h("section", { class: "card" }, h("h2", {}, "Rewards"), histogram(rows.map((row) => row.reward), "rewards")),
      h("section", { class: "card" }, h("h2", {}, "Tokens"), histogram(rows.map((row) => row.length), "tokens"))),
    partCards(value.parts ?? {}),
    h("h2", { vars: { "margin-top": "1.6rem" } }, "Groups"), groupTable(value, base),
    h("h2", { vars: { "margin-top": "1.6rem" } }, "Completions"),
    h("div", { class: "tools" }, select("order", "Order", Object.keys(ORDERS).map((name) => [name, name])),
      select("outcome", "Outcome", [["", "all"], ...outcomes.map((name) => [name, name])]),
      h("label", {}, "Find text", h("input", { type: "search", id: "find", value: state.q, oninput: set("q") }))), count, list.box);
  apply();
}
