// Charts as SVG, so that a keyboard and a screen reader reach them.

import { number, s } from "./dom.js";

const HISTOGRAM = 320;
const MOST_POINTS = 2000;

/** Indices to draw: of every bucket the smallest and the largest value, in order. */
export function thinned(values, most = MOST_POINTS) {
  if (values.length <= most) return values.map((_, i) => i);
  const size = Math.ceil(values.length / (most / 2));
  const kept = [];
  for (let start = 0; start < values.length; start += size) {
    let low = start;
    let high = start;
    for (let i = start; i < Math.min(start + size, values.length); i += 1) {
      if (values[i] < values[low]) low = i;
      if (values[i] > values[high]) high = i;
    }
    kept.push(...(low === high ? [low] : [Math.min(low, high), Math.max(low, high)]));
  }
  return kept;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!known(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  if (low === high) return [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  return [low, high];
}

function path(values, x, y, indices) {
  let open = false;
  return indices.map((i) => {
    if (!known(values[i])) { open = false; return ""; }
    const step = `${open ? "L" : "M"}${x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    open = true;
    return step;
  }).join("");
}

function area({ low, high }, x, y) {
  const there = low.map((_, i) => i).filter((i) => known(low[i]) && known(high[i]));
  const at = (values) => (i) => `${x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
  return there.length < 2 ? "" : `M${there.map(at(low)).join("L")}L${there.reverse().map(at(high)).join("L")}Z`;
}

/**
 * Lines over x. `series`: {name, values, tone, strong, marks}; `options`: {label, x, band: [low, high],
 * areas: [{low, high, tone}], height, cursor, onpick(index)}. Where it can be picked, arrow keys move through the points and Enter picks one.
 */
export function lines(series, options) {
  const height = options.height ?? 120;
  const WIDTH = Math.min(Math.max(innerWidth - 80, 260), options.width ?? 760);
  const [left, right, top, bottom] = [56, 12, 10, 22];
  const every = series.flatMap((one) => one.values).concat(options.band ?? [], ...(options.areas ?? []).flatMap((one) => [one.low, one.high]));
  const [low, high] = extent(every);
  const constant = every.find(known);
  const isFlat = constant !== undefined && every.every((value) => !known(value) || value === constant);
  const xs = options.x;
  const [first, last] = [xs[0] ?? 0, xs.at(-1) ?? 1];
  const x = (i) => left + (xs[i] - first) / ((last - first) || 1) * (WIDTH - left - right);
  const y = (value) => top + (high - value) / (high - low) * (height - top - bottom);
  const label = (value, at, anchor) => s("text", { x: at[0], y: at[1], "text-anchor": anchor }, number(value, 3));
  const chart = s("svg", {
    class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: options.onpick ? "slider" : "img", "aria-label": options.label,
    ...(options.onpick ? { tabindex: 0, "aria-valuemin": first, "aria-valuemax": last, "aria-valuenow": options.cursor ?? first } : {}),
  },
  s("line", { class: "axis", x1: left, x2: WIDTH - right, y1: height - bottom, y2: height - bottom }),
  isFlat ? label(constant, [left - 6, y(constant) + 4], "end") : [label(high, [left - 6, top + 4], "end"), label(low, [left - 6, height - bottom], "end")],
  label(first, [left, height - 6], "start"), label(last, [WIDTH - right, height - 6], "end"),
  (options.band ?? []).map((bound) => s("line", { class: "bound", x1: left, x2: WIDTH - right, y1: y(bound), y2: y(bound) })),
  (options.areas ?? []).map((one) => s("path", { class: `area ${one.tone ?? ""}`, d: area(one, x, y) })),
  series.map((one) => [
    s("path", { class: `line ${one.tone ?? ""} ${one.strong ? "strong" : ""}`, d: path(one.values, x, y, thinned(one.values)) }, s("title", {}, one.name)),
    (one.marks ?? []).flatMap((marked, i) => (marked ? [s("circle", { class: "ring", cx: x(i), cy: y(one.values[i]), r: 4 })] : [])),
    xs.length === 1 && known(one.values[0]) ? s("circle", { class: "dot", cx: x(0), cy: y(one.values[0]), r: 3 }) : null,
  ]));
  if (options.onpick) pickable(chart, series, { ...options, x, height, left, right, width: WIDTH });
  return chart;
}

function pickable(chart, series, { x, height, width, left, right, onpick, cursor, ...options }) {
  const steps = series[0].values.map((_, i) => i);
  const line = s("line", { class: "cursor", y1: 4, y2: height - 18, visibility: "hidden" });
  const note = s("text", { class: "reading", y: 12, "text-anchor": "middle" });
  chart.append(line, note);
  let at = cursor ?? steps.length - 1;
  const move = (i) => {
    at = Math.min(Math.max(i, 0), steps.length - 1);
    line.setAttribute("x1", x(at));
    line.setAttribute("x2", x(at));
    line.setAttribute("visibility", "visible");
    note.setAttribute("x", Math.min(Math.max(x(at), left + 60), width - right - 60));
    note.textContent = `step ${options.steps[at]}: ${number(series[0].values[at])}`;
    chart.setAttribute("aria-valuenow", options.steps[at]);
    chart.setAttribute("aria-valuetext", note.textContent);
  };
  const nearest = (event) => {
    const box = chart.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * width;
    return steps.reduce((best, i) => (Math.abs(x(i) - place) < Math.abs(x(best) - place) ? i : best), 0);
  };
  chart.addEventListener("pointermove", (event) => move(nearest(event)));
  chart.addEventListener("click", (event) => onpick(nearest(event)));
  chart.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length }[event.key];
    if (by) { move(at + by); event.preventDefault(); }
    if (event.key === "Enter" || event.key === " ") { onpick(at); event.preventDefault(); }
  });
  chart.addEventListener("focus", () => move(at));
}

/** A histogram of values as bars. */
export function histogram(values, label, bins = 20) {
  const numbers = values.filter(known);
  const [low, high] = extent(numbers);
  const counts = Array(bins).fill(0);
  for (const value of numbers) counts[Math.min(bins - 1, Math.floor((value - low) / (high - low) * bins))] += 1;
  const most = Math.max(...counts, 1);
  const width = HISTOGRAM / bins;
  return s("svg", { class: "chart small", viewBox: `0 0 ${HISTOGRAM} 90`, role: "img", "aria-label": `${label}: ${numbers.length} values from ${number(low)} to ${number(high)}` },
    counts.map((count, i) => s("rect", { class: "column", x: i * width + 1, width: width - 2, y: 66 - 60 * count / most, height: 60 * count / most },
      s("title", {}, `${number(low + i * (high - low) / bins, 3)} to ${number(low + (i + 1) * (high - low) / bins, 3)}: ${count}`))),
    s("text", { x: 2, y: 84 }, number(low, 3)), s("text", { x: HISTOGRAM - 2, y: 84, "text-anchor": "end" }, number(high, 3)));
}

/**
 * Lines that have places of their own on a logarithmic x. `series`: {name, tone, points: [{x, value, low, high, note}]}; y is a share from 0 to 1.
 */
export function curves(series, options) {
  const width = Math.min(Math.max(innerWidth - 80, 260), 640);
  const height = 260;
  const [left, right, top, bottom] = [48, 12, 10, 40];
  const xs = series.flatMap((one) => one.points.map((point) => Math.log(point.x)));
  const [low, high] = extent(xs);
  const x = (point) => left + (Math.log(point.x) - low) / (high - low) * (width - left - right);
  const y = (value) => top + (1 - Math.min(Math.max(value, 0), 1)) * (height - top - bottom);
  const at = (point, value) => `${x(point).toFixed(1)} ${y(value).toFixed(1)}`;
  const band = (points) => {
    const there = points.filter((point) => known(point.low) && known(point.high));
    return there.length < 2 ? null : `M${there.map((point) => at(point, point.low)).join("L")}L${there.slice().reverse().map((point) => at(point, point.high)).join("L")}Z`;
  };
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label },
    ticks.map((share) => [s("line", { class: "axis", x1: left, x2: width - right, y1: y(share), y2: y(share) }), s("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`)]),
    s("text", { x: left, y: height - 22 }, Math.round(Math.exp(low)).toLocaleString("en")), s("text", { x: width - right, y: height - 22, "text-anchor": "end" }, Math.round(Math.exp(high)).toLocaleString("en")),
    s("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, options.x),
    series.map((one) => (band(one.points) ? s("path", { class: `area ${one.tone}`, d: band(one.points) }) : null)),
    series.map((one) => [s("path", { class: `line ${one.tone}`, d: `M${one.points.map((point) => at(point, point.value)).join("L")}` }),
      one.points.map((point) => s("circle", { class: `dot ${one.tone}`, cx: x(point).toFixed(1), cy: y(point.value).toFixed(1), r: 3 },
        s("title", {}, `${one.name}, ${point.note}: ${(100 * point.value).toFixed(1)} % at ${Math.round(point.x).toLocaleString("en")} tokens`)))]));
}
