// The arithmetic of a group: advantages, losses, KL, weights and the policy that moves. Pure functions of numbers; the
// same names as in groupwise.algorithms, whose results a test compares with these.

export const STD_EPS = 1e-4;

const sum = (values) => values.reduce((total, value) => total + value, 0);
export const mean = (values) => sum(values) / values.length;

/** Standard deviation with divisor n - correction. */
export function std(values, correction = 0) {
  const centre = mean(values);
  return Math.sqrt(sum(values.map((value) => (value - centre) ** 2)) / (values.length - correction));
}

const centred = (values) => { const centre = mean(values); return values.map((value) => value - centre); };
const over = (values, divisor) => values.map((value) => value / divisor);
const differ = (values) => values.some((value) => value !== values[0]);
const orZeros = (estimate) => (values) => (differ(values) ? estimate(values) : values.map(() => 0));
const perGroup = (estimate) => (groups) => groups.map((group) => orZeros(estimate)(group.total));
const all = (groups) => groups.flatMap((group) => group.total);
const normalised = (values) => over(centred(values), std(values) + STD_EPS);

function dividedByMean(values) {
  if (values.some((value) => value < 0)) {
    throw new RangeError("dividing by the mean reward needs rewards that are not negative");
  }
  return values.some((value) => value !== 0) ? over(centred(values), mean(values)) : values.map(() => 0);
}

function partsNormalised(groups) {
  const sums = groups.map((group) => {
    const columns = (group.parts[0] ?? []).map((_, part) => orZeros(normalised)(group.parts.map((row) => row[part])));
    return group.total.map((_, i) => sum(columns.map((column) => column[i])));
  });
  const scale = std(sums.flat()) + STD_EPS;
  return sums.map((values) => over(values, scale));
}

/** Each takes [{total, parts}], the judged completions of every group of a step, and gives an array per group. */
export const ADVANTAGES = {
  group_mean: perGroup(centred),
  group_normalised: perGroup(normalised),
  group_normalised_sample: perGroup((values) => over(centred(values), std(values, 1) + STD_EPS)),
  leave_one_out: perGroup((values) => over(centred(values), (values.length - 1) / values.length)),
  divided_by_mean: perGroup(dividedByMean),
  none: (groups) => groups.map((group) => [...group.total]),
  batch_mean: (groups) => { const centre = mean(all(groups)); return groups.map((g) => g.total.map((r) => r - centre)); },
  batch_normalised: (groups) => {
    const scale = std(all(groups)) + STD_EPS;
    return ADVANTAGES.batch_mean(groups).map((values) => over(values, scale));
  },
  batch_std: (groups) => {
    const scale = std(all(groups)) + STD_EPS;
    return perGroup((values) => over(centred(values), scale))(groups);
  },
  parts_normalised: partsNormalised,
};

/** Advantages of all completions of a step; null where the verifier failed, which is no part of any statistics. */
export function stepAdvantages(kind, rewards, parts = rewards.map((group) => group.map((reward) => [reward]))) {
  const judged = rewards.map((group) => group.flatMap((reward, i) => (reward === null ? [] : [i])));
  const numbers = judged.flatMap((indices, number) => (indices.length ? [number] : []));
  const results = rewards.map((group) => group.map(() => null));
  if (!numbers.length) return results;
  const groups = numbers.map((number) => ({
    total: judged[number].map((i) => rewards[number][i]),
    parts: judged[number].map((i) => parts[number][i]),
  }));
  ADVANTAGES[kind](groups).forEach((values, k) => {
    values.forEach((value, j) => { results[numbers[k]][judged[numbers[k]][j]] = value; });
  });
  return results;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const sigmoid = (value) => 1 / (1 + Math.exp(-value));

function clippedRatio(ratio, advantage, logprob, dials) {
  const unclipped = ratio * advantage;
  const bounded = clamp(ratio, 1 - dials.clip_low, 1 + dials.clip_high) * advantage;
  let objective = Math.min(unclipped, bounded);
  let clipped = bounded < unclipped;
  if (dials.dual_clip && advantage < 0) {
    const floor = dials.dual_clip * advantage;
    clipped = clipped || floor > objective;
    objective = Math.max(objective, floor);
  }
  return { loss: -objective, clipped, slope: clipped ? 0 : -unclipped };
}

/** Loss of one token, whether a bound holds, and `slope`, the loss's derivative by the log-probability. */
export const POLICY_LOSSES = {
  clipped_ratio: clippedRatio,
  sequence_ratio: clippedRatio,
  clipped_weight: (ratio, advantage, logprob, dials) => {
    const weight = clamp(ratio, 1 - dials.clip_low, 1 + dials.clip_high);
    return { loss: -weight * advantage * logprob, clipped: weight !== ratio, slope: -weight * advantage };
  },
  soft_gate: (ratio, advantage, logprob, dials) => {
    const tau = advantage > 0 ? dials.tau_pos : dials.tau_neg;
    const gate = sigmoid(tau * (ratio - 1));
    return { loss: -gate * (4 / tau) * advantage, clipped: false, slope: -4 * gate * (1 - gate) * ratio * advantage };
  },
  reinforce: (ratio, advantage, logprob) => ({ loss: -advantage * logprob, clipped: false, slope: -advantage }),
};

/** Losses of the tokens of completions that follow each other; `lengths` says how long each is. */
export function tokenLosses(kind, dials, logprobs, oldLogprobs, advantages, lengths) {
  let ratios = logprobs.map((logprob, t) => Math.exp(logprob - oldLogprobs[t]));
  if (kind === "sequence_ratio") {
    let start = 0;
    ratios = lengths.flatMap((length) => {
      const logs = logprobs.slice(start, start + length).map((logprob, t) => logprob - oldLogprobs[start + t]);
      start += length;
      return Array(length).fill(Math.exp(mean(logs)));
    });
  }
  return ratios.map((ratio, t) => ({ ratio, ...POLICY_LOSSES[kind](ratio, advantages[t], logprobs[t], dials) }));
}

/** Estimates of KL(π ‖ π_ref) from one token, with the derivative by log π; see groupwise.algorithms.kl. */
export const KL_ESTIMATORS = {
  k1: (logprob, ref) => ({ value: logprob - ref, slope: 1 }),
  k2: (logprob, ref) => ({ value: (logprob - ref) ** 2 / 2, slope: logprob - ref }),
  k3: (logprob, ref) => ({ value: Math.expm1(ref - logprob) - (ref - logprob), slope: -Math.expm1(ref - logprob) }),
};

/** ρ · k with the gradient through ρ too, for tokens drawn from an older policy. */
export const importanceCorrected = (kl, ratio) => ({ value: ratio * kl.value, slope: ratio * (kl.value + kl.slope) });

/** Weight of each token of a completion of this length; rounded to single precision, as in training. */
export const AGGREGATIONS = {
  constant: (length, batch) => Math.fround(1 / (batch.num_completions * batch.max_tokens)),
  token: (length, batch) => Math.fround(1 / batch.num_tokens),
  sequence: (length, batch) => Math.fround(1 / Math.fround(batch.num_completions * length)),
};

export function softmax(logits) {
  const top = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp(logit - top));
  return over(powers, sum(powers));
}

/**
 * The policy before and after each update. It is a softmax over the group's completions, which begins uniform: all
 * tokens of a completion share its ratio, and what one completion gains the others lose.
 */
export function policyMoves(advantages, lengths, settings) {
  const count = advantages.length;
  const batch = { num_completions: count, num_tokens: sum(lengths), max_tokens: settings.max_tokens };
  const weights = lengths.map((length) => length * AGGREGATIONS[settings.aggregation](length, batch));
  const old = -Math.log(count);
  let logits = Array(count).fill(0);
  const moves = [{ policy: softmax(logits), ratio: Array(count).fill(1), clipped: Array(count).fill(false) }];
  for (let epoch = 0; epoch < settings.epochs; epoch += 1) {
    const policy = softmax(logits);
    const slopes = policy.map((p, i) => {
      if (advantages[i] === null) return 0;
      const logprob = Math.log(p);
      const ratio = Math.exp(logprob - old);
      let kl = KL_ESTIMATORS[settings.kl_estimator](logprob, old);
      if (settings.kl_corrected) kl = importanceCorrected(kl, ratio);
      const loss = POLICY_LOSSES[settings.loss](ratio, advantages[i], logprob, settings);
      return weights[i] * (loss.slope + settings.kl_coef * kl.slope);
    });
    const total = sum(slopes);
    logits = logits.map((logit, i) => logit - settings.step_size * (slopes[i] - policy[i] * total));
    const after = softmax(logits);
    const ratio = after.map((p) => Math.exp(Math.log(p) - old));
    const clipped = ratio.map((value, i) => advantages[i] !== null
      && POLICY_LOSSES[settings.loss](value, advantages[i], Math.log(after[i]), settings).clipped);
    moves.push({ policy: after, ratio, clipped });
  }
  return { weights, moves };
}
