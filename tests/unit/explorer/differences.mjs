// Runs in node and in a browser.

export function differences(page, cases) {
  const worst = { advantages: 0, losses: 0, slopes: 0, kl: 0, weights: 0, clipped: 0, count: 0 };
  const note = (name, found, expected) => {
    if ((found === null) !== (expected === null)) { worst[name] = Infinity; return; }
    if (found === null) return;
    const difference = Math.abs(found - expected) / Math.max(1, Math.abs(expected));
    if (!(difference <= worst[name])) worst[name] = Number.isNaN(difference) ? Infinity : difference;
    worst.count += 1;
  };
  for (const one of cases.advantages) {
    const found = page.stepAdvantages(one.kind, one.rewards, one.parts);
    one.expected.forEach((group, g) => group.forEach((value, i) => note("advantages", found[g][i], value)));
  }
  for (const one of cases.losses) {
    const found = page.tokenLosses(one.kind, one.dials, one.logprobs, one.old, one.advantages, one.lengths);
    found.forEach((token, t) => {
      note("losses", token.loss, one.loss[t]);
      note("losses", token.ratio, one.ratio[t]);
      if (token.clipped !== one.clipped[t]) worst.clipped += 1;
    });
    let start = 0;
    one.lengths.forEach((length, i) => {
      note("slopes", found.slice(start, start + length).reduce((total, token) => total + token.slope, 0), one.slopes[i]);
      start += length;
    });
  }
  for (const one of cases.kl) {
    let kl = page.KL_ESTIMATORS[one.kind](one.logprob, one.ref);
    if (one.corrected) kl = page.importanceCorrected(kl, Math.exp(one.logprob - one.old));
    note("kl", kl.value, one.value);
    note("kl", kl.slope, one.slope);
  }
  for (const one of cases.weights) {
    one.lengths.forEach((length, i) => note("weights", page.AGGREGATIONS[one.kind](length, one.batch), one.expected[i]));
  }
  const names = { advantages: page.ADVANTAGES, losses: page.POLICY_LOSSES, kl: page.KL_ESTIMATORS, aggregations: page.AGGREGATIONS };
  for (const [name, table] of Object.entries(names)) {
    if (JSON.stringify(Object.keys(table).sort()) !== JSON.stringify([...cases.names[name]].sort())) worst.names = name;
  }
  return worst;
}
