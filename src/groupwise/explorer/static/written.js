// The arithmetic of one advantage, term by term, with the numbers in it.

import { STD_EPS, mean, std } from "./arithmetic.js";
import { number, signed } from "./dom.js";

const plain = (value) => number(value, 3);
const wrapped = (value) => (value < 0 ? `(${plain(value)})` : plain(value));

function meanLine(values, name) {
  return `mean${name} = (${values.map(wrapped).join(" + ")}) / ${values.length} = ${mean(values).toFixed(3)}`;
}

function stdLine(values, name, correction = 0) {
  const centre = mean(values).toFixed(3);
  const squares = values.map((value) => `(${plain(value)} − ${centre})²`).join(" + ");
  const divisor = correction ? `(${values.length} − 1)` : values.length;
  return `std${name} = √[ (${squares}) / ${divisor} ] = ${std(values, correction).toFixed(3)}`;
}

const eps = `${STD_EPS}`;

/** Lines of text. `judged`: the rewards of the group; `step`: those of all groups; `reward`: the completion's own. */
export function writtenOut(kind, judged, step, reward, advantage) {
  const result = signed(advantage, 4);
  const m = mean(judged).toFixed(3);
  const M = mean(step).toFixed(3);
  const r = plain(reward);
  const divided = (centre, scale) => `Â = (${r} − ${centre}) / (${scale.toFixed(3)} + ${eps}) = ${result}`;
  if (kind === "none") return [`Â = r = ${result}`];
  if (kind.startsWith("batch_") && kind !== "batch_std") {
    return kind === "batch_mean"
      ? [meanLine(step, " of the step"), `Â = ${r} − ${M} = ${result}`]
      : [meanLine(step, " of the step"), stdLine(step, " of the step"), divided(M, std(step))];
  }
  if (judged.every((value) => value === judged[0])) return ["All rewards of the group are equal: Â = 0 exactly."];
  if (kind === "batch_std") return [meanLine(judged, ""), stdLine(step, " of the step"), divided(m, std(step))];
  if (kind === "group_mean") return [meanLine(judged, ""), `Â = ${r} − ${m} = ${result}`];
  if (kind === "group_normalised") return [meanLine(judged, ""), stdLine(judged, ""), divided(m, std(judged))];
  if (kind === "group_normalised_sample") {
    return [meanLine(judged, ""), stdLine(judged, "", 1), divided(m, std(judged, 1))];
  }
  if (kind === "leave_one_out") {
    const n = judged.length;
    const others = (judged.reduce((a, b) => a + b, 0) - reward) / (n - 1);
    return [`mean of the ${n - 1} others = ${others.toFixed(3)}`, `Â = ${r} − ${others.toFixed(3)} = ${result}`];
  }
  if (kind === "divided_by_mean") return [meanLine(judged, ""), `Â = (${r} − ${m}) / ${m} = ${result}`];
  return ["Each part is normalised within the group: (part − mean) / (std + " + eps + ").",
    "Their sum is divided by its standard deviation over the step:", `Â = ${result}`];
}
