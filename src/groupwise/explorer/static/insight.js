// What a group of rewards teaches, in a sentence.

import { mean, std } from "./arithmetic.js";

const NEAR = 0.02;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function spread(judged, kind) {
  const scale = std(judged);
  if (scale >= NEAR) return null;
  const range = (Math.max(...judged) - Math.min(...judged)).toPrecision(2);
  return kind.startsWith("group_normalised")
    ? `The rewards differ by only ${range}, but dividing by a standard deviation of ${scale.toPrecision(2)} blows the `
      + "difference up to full size: noise is learned as if it were the answer. An estimator that does not divide "
      + "by it (group_mean) stays small."
    : `The rewards differ by only ${range}. This estimator keeps the signal that small; dividing by the group's `
      + "standard deviation would blow it up to full size.";
}

/** A kind and a sentence. `group` holds {reward, truncated} per completion, reward null where the verifier failed. */
export function insight(group, kind) {
  const judged = group.map((one) => one.reward).filter((reward) => reward !== null);
  const failed = group.length - judged.length;
  const truncated = group.filter((one) => one.truncated).length;
  const notes = [];
  if (failed && judged.length) {
    notes.push(`The verifier failed on ${plural(failed, "completion")}: that is no zero. Such a completion is left out `
      + "of the mean and gets no advantage.");
  }
  if (truncated) {
    notes.push(`${plural(truncated, "completion")} ran into the token limit. What was cut off cannot be right, so the `
      + "group may be teaching “be short” rather than “be right”.");
  }
  return { ...main(judged, kind), notes };
}

function main(judged, kind) {
  if (!judged.length) {
    return { kind: "failed", text: "The verifier failed on every completion: nothing is known, and nothing is learned." };
  }
  if (judged.every((reward) => reward === judged[0])) return flat(judged, kind);
  const trap = spread(judged, kind);
  if (trap) return { kind: "near", text: trap };
  const right = judged.filter((reward) => reward === Math.max(...judged)).length;
  const average = mean(judged).toFixed(3);
  if (right === 1) {
    return { kind: "one", text: "A single completion beats all others. Its push is as strong as it gets: a rare success "
      + "is what this problem has to teach." };
  }
  return { kind: "mixed", text: `Mixed results, a clear signal: ${right} of ${judged.length} earned the most, the mean `
    + `reward is ${average}. What lies above it is made likelier, what lies below less likely.` };
}

function flat(judged, kind) {
  const without = ["none", "batch_mean", "batch_normalised"].includes(kind);
  if (without) {
    return { kind: "flat", text: "All rewards are equal. An estimator without a group baseline moves all completions "
      + "alike; within the group nothing gains on anything else." };
  }
  if (judged[0] > 0) {
    return { kind: "right", text: "All right, so nothing to compare: every advantage is exactly zero and the policy stays. "
      + "The problem has become too easy for this group." };
  }
  return { kind: "wrong", text: "All wrong, so nothing to compare: every advantage is exactly zero and the policy stays. "
    + "The problem is too hard yet; a larger group may find one success." };
}
