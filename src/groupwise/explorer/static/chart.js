// Charts drawn by uPlot (vendor/): axes, grid, the values under the pointer; drag to zoom, double-click to see all again.
// A chart that opens something is a slider: arrow keys move through its points and Enter opens one.

import { h, number, percent } from "./dom.js";

const known = (value) => typeof value === "number" && Number.isFinite(value);
const DASHES = { low: [7, 3], t1: [7, 3], t2: [2, 3], t3: [10, 3, 2, 3], t4: [4, 2], t5: [12, 4], bound: [5, 4] };
const FADED = 0.16;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const toneOf = (tone) => css(`--${tone || "accent"}`) || css("--accent");
/** The colour as a see-through one; all colours of the style sheet are #rrggbb. */
const faded = (colour, share) => `${colour}${Math.round(255 * share).toString(16).padStart(2, "0")}`;

/** One sorted x for all series. A place that a series does not have is undefined, over which its line runs on. */
function aligned(series) {
  const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, i) => [x, i]));
  const column = (one, values) => {
    const filled = Array(xs.length).fill(undefined);
    one.x.forEach((x, i) => { filled[place.get(x)] = known(values[i]) ? values[i] : null; });
    return filled;
  };
  return { xs, column };
}

/** Mean over a moving window; gaps stay gaps. */
export function smoothed(values, width = Math.floor(values.length / 15)) {
  const half = Math.floor(width / 2);
  return values.map((value, i) => {
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter(known);
    return known(value) ? near.reduce((sum, one) => sum + one, 0) / near.length : null;
  });
}

const axis = (options) => ({ stroke: () => css("--soft"), font: "12px system-ui, sans-serif", grid: { stroke: () => css("--rule"), width: 1 }, ticks: { show: false }, gap: 6, ...options });

/** The element in which a chart appears as soon as it has a width; drawn anew when its width or the theme changes. */
function place(label, height, make, slider) {
  const box = h("div", { class: "plot", role: slider ? "slider" : "img", tabindex: slider ? 0 : null, "aria-label": label, ...(slider ? { "aria-valuemin": slider.low, "aria-valuemax": slider.high, "aria-valuenow": slider.high } : {}) });
  box.style.minHeight = `${height}px`;
  box.redraw = () => {
    box.plot?.destroy();
    box.plot = make(box, Math.max(box.clientWidth, 160));
  };
  new ResizeObserver(() => {
    if (!box.clientWidth || box.clientWidth === box.drawn) return;
    box.drawn = box.clientWidth;
    if (box.plot) box.plot.setSize({ width: box.clientWidth, height });
    else box.redraw();
  }).observe(box);
  return box;
}

/** Draw all charts of the page in the colours of the theme. */
export const redrawAll = () => document.querySelectorAll(".plot").forEach((box) => box.plot && box.redraw());

function pickable(box, plot, xs, onpick) {
  const move = (to) => {
    const at = Math.min(Math.max(to, 0), xs.length - 1);
    plot.setCursor({ left: plot.valToPos(xs[at], "x"), top: 10 });
  };
  box.onfocus = () => { if (plot.cursor.idx === null || plot.cursor.idx === undefined) move(xs.length - 1); };
  box.onkeydown = (event) => {
    const from = plot.cursor.idx ?? xs.length - 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: xs.length - 1 }[event.key];
    if (to !== undefined) { move(to); event.preventDefault(); }
    if (event.key === "Enter" || event.key === " ") { onpick(xs[from]); event.preventDefault(); }
  };
  plot.over.addEventListener("click", () => { if (known(plot.cursor.idx)) onpick(xs[plot.cursor.idx]); });
}

/**
 * Lines over x. `series`: {name, x, values, tone, low, high, strong, faint, marks}: `low` and `high` make a band, `marks` are indices with a ring.
 * `options`: {label, height, share (y is a share), log (x is logarithmic), bounds (values of dashed lines), xName, onpick(x), sync}.
 */
export function lines(series, options) {
  const height = options.height ?? 170;
  const { xs, column } = aligned(series);
  const show = options.share ? (value) => percent(value) : (value) => number(value, 4);
  const data = [xs];
  const drawn = [{ label: options.xName ?? "step", value: (_, value) => (value === null ? "–" : number(value, 6)) }];
  const bands = [];
  const rings = new Map();
  const odd = new Map(); // of a series: its values that are no finite numbers, by their place
  for (const one of series) {
    const tone = toneOf.bind(null, one.tone);
    if (one.low) {
      data.push(column(one, one.high), column(one, one.low));
      for (const end of ["highest", "lowest"]) drawn.push({ label: `${one.name}, ${end}`, class: "edge", width: 0, stroke: "transparent", points: { show: false } });
      bands.push({ series: [data.length - 2, data.length - 1], fill: () => faded(tone(), FADED) });
    }
    data.push(column(one, one.values));
    const at = data.length - 1;
    if (one.marks) rings.set(at, one.marks);
    odd.set(at, new Map(one.x.flatMap((x, i) => (typeof one.values[i] === "string" ? [[xs.indexOf(x), one.values[i]]] : []))));
    drawn.push({
      label: one.name, stroke: () => (one.faint ? faded(tone(), 0.35) : tone()), width: one.strong ? 2.6 : one.faint ? 1 : 1.6, dash: one.strong || one.faint ? undefined : DASHES[one.tone],
      class: one.faint ? "edge" : null,
      value: (plot, value, _, i) => (value === null || value === undefined ? odd.get(at).get(i) ?? "–" : one.low && known(plot.data[at - 2][i]) ? `${show(value)} [${show(plot.data[at - 1][i])}, ${show(plot.data[at - 2][i])}]` : show(value)),
      points: one.marks ? { show: true, size: 8, filter: (_, index) => rings.get(index) } : one.faint ? { show: false } : { size: 5 },
    });
  }
  for (const bound of options.bounds ?? []) {
    data.push(xs.map(() => bound));
    drawn.push({ label: `bound ${number(bound)}`, class: "edge", stroke: () => css("--soft"), dash: DASHES.bound, width: 1, points: { show: false } });
  }
  const range = options.share ? (_, low, high) => [Math.min(0, low ?? 0), (high ?? 1) > 1 ? high * 1.05 : Math.min(1, Math.max((high ?? 1) * 1.1, 0.05))] : undefined;
  /** Where nothing is pointed at, the legend shows the newest values. */
  const newest = (plot) => { if (xs.length) plot.setLegend({ idxs: data.map((values, k) => Math.max(values.findLastIndex(known), ...(odd.get(k)?.keys() ?? []))) }); };
  const slider = options.onpick ? { low: xs[0] ?? 0, high: xs.at(-1) ?? 0 } : null;
  return place(options.label, height, (box, width) => {
    const plot = new uPlot({
      width, height, scales: { x: { time: false, distr: options.log ? 3 : 1 }, y: range ? { range } : {} },
      axes: [axis({ size: 30, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : tick.toLocaleString("en"))) }), axis({ size: 62, values: (_, ticks) => ticks.map((tick) => (options.share ? percent(tick, 0) : number(tick, 4))) })],
      series: drawn, bands, cursor: { y: false, focus: { prox: 24 }, drag: { x: true, y: false }, ...(options.sync ? { sync: { key: options.sync, scales: ["x", null] } } : {}) },
      focus: { alpha: 1 }, hooks: { ready: [newest], setCursor: [(self) => {
        const i = self.cursor.idx;
        if (!known(i)) newest(self);
        if (!slider || !known(i)) return;
        const shownAt = self.series.flatMap((one, k) => (k && one.class !== "edge" && known(self.data[k][i]) ? [`${one.label} ${show(self.data[k][i])}`] : []));
        box.setAttribute("aria-valuenow", xs[i]);
        box.setAttribute("aria-valuetext", `${options.xName ?? "step"} ${xs[i]}: ${shownAt.join(", ")}`);
      }] },
    }, data, box);
    if (options.onpick) pickable(box, plot, xs, options.onpick);
    return plot;
  }, slider);
}

/** How often values fall into each of `bins` intervals. */
export function histogram(values, label, bins = 20) {
  const numbers = values.filter(known);
  const low = numbers.length ? Math.min(...numbers) : 0;
  const high = numbers.length ? Math.max(...numbers) : 1;
  const [first, width] = high > low ? [low, (high - low) / bins] : [low - 0.5, 1];
  const count = high > low ? bins : 1;
  const counts = Array(count).fill(0);
  for (const value of numbers) counts[Math.min(count - 1, Math.floor((value - first) / width))] += 1;
  const middles = counts.map((_, i) => first + (i + 0.5) * width);
  const height = 130;
  const name = `${label}: ${numbers.length} values from ${number(low)} to ${number(high)}`;
  return place(name, height, (box, size) => new uPlot({
    width: size, height, scales: { x: { time: false, range: [first, first + count * width] }, y: { range: (_, least, most) => [0, Math.max(most, 1)] } },
    axes: [axis({ size: 30, values: (_, ticks) => ticks.map((tick) => number(tick, 4)) }), axis({ size: 62, space: 40, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick.toLocaleString("en") : "")) })],
    series: [{ label, value: (_, value) => (value === null ? "–" : `${number(value - width / 2, 3)} to ${number(value + width / 2, 3)}`) },
      { label: "completions", width: 0, value: (_, value) => value ?? "–", stroke: () => css("--accent"), fill: () => css("--accent"), paths: uPlot.paths.bars({ size: [0.9, Infinity] }), points: { show: false } }],
    cursor: { y: false, drag: { x: true, y: false } },
  }, [middles, counts], box));
}
