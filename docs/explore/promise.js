// What the certified numbers of the page promise. Nothing here draws; nothing here is fetched.
"use strict";

const NUMBERS = JSON.parse(document.getElementById("numbers").textContent);

const CODES = (() => {
  const bytes = Uint8Array.from(atob(NUMBERS.codes), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true));
})();

// Where a setting stands in the table: families, then noise, then samples (everybody, in groups; then rates), then counts.
function rowOf(setting) {
  let row = 0;
  for (const family of Object.keys(NUMBERS.noise)) {
    const samples = NUMBERS.groups.length + (family === "response" ? 0 : NUMBERS.rates.length - 1);
    const each = samples * NUMBERS.counts.length;
    if (family === setting.family) {
      const sample = setting.rate === 0 ? setting.group : NUMBERS.groups.length + setting.rate - 1;
      return row + setting.noise * each + sample * NUMBERS.counts.length + setting.count;
    }
    row += NUMBERS.noise[family].length * each;
  }
  throw new Error(`no numbers of ${setting.family}`);
}

// The promises (ε, δ) of a setting, ε rising. Each is certified from above.
function promises(setting) {
  const row = rowOf(setting), end = NUMBERS.ends[row], n = NUMBERS.points, each = n + NUMBERS.epsilons.length;
  const found = [];
  for (let j = 0; j < each; j++) {
    const code = CODES[row * each + j];
    found.push({
      epsilon: j < n ? end * (j * (j + 40)) / ((n - 1) * (n + 39)) : NUMBERS.epsilons[j - n],
      delta: code === NUMBERS.zero ? 0 : 10 ** (-code / NUMBERS.steps),
    });
  }
  NUMBERS.needed[row].forEach((epsilon, j) => { if (epsilon >= 0) found.push({ epsilon, delta: NUMBERS.deltas[j] }); });
  return found.sort((a, b) => a.epsilon - b.epsilon || b.delta - a.delta);
}

// The polygon that those promises put under β: vertices (α, hits), hits = 1 - β kept instead of β, which loses digits.
// β >= 1 - δ - e^ε α for each of them, and the same with α and β exchanged.
function polygon(known) {
  const hull = [];
  const meet = (a, b) => (b.delta - a.delta) / (Math.exp(a.epsilon) - Math.exp(b.epsilon)); // a is the steeper
  for (const line of [...known].reverse()) {
    if (hull.length && hull.at(-1).epsilon === line.epsilon) continue; // the smaller δ came first
    while (hull.length > 1 && meet(hull.at(-2), hull.at(-1)) >= meet(hull.at(-2), line)) hull.pop();
    if (hull.length === 1 && line.delta <= hull[0].delta) hull.pop();
    hull.push(line);
  }
  const steep = [{ alpha: 0, hits: hull[0].delta }];
  for (let i = 1; i < hull.length; i++) {
    const alpha = meet(hull[i - 1], hull[i]);
    steep.push({ alpha, hits: hull[i].delta + Math.exp(hull[i].epsilon) * alpha });
  }
  // Beyond the diagonal the mirror image is the higher one: a corner stands where they meet.
  const over = steep.findIndex(({ alpha, hits }) => alpha > 1 - hits);
  if (over > 0) {
    const from = steep[over - 1], to = steep[over], slope = (to.hits - from.hits) / (to.alpha - from.alpha);
    const corner = (1 - from.hits + slope * from.alpha) / (1 + slope);
    steep.splice(over, Infinity, { alpha: corner, hits: 1 - corner });
  }
  const flat = steep.map(({ alpha, hits }) => ({ alpha: 1 - hits, hits: 1 - alpha })).reverse();
  const whole = [...steep, ...flat, { alpha: 1, hits: 1 }];
  return whole.filter((v, i) => i === 0 || v.alpha > whole[i - 1].alpha || v.hits > whole[i - 1].hits);
}

function hits(vertices, alpha) {
  let i = 1;
  while (i < vertices.length - 1 && vertices[i].alpha < alpha) i++;
  const a = vertices[i - 1], b = vertices[i];
  if (b.alpha === a.alpha) return b.hits;
  return Math.min(1, a.hits + (b.hits - a.hits) * (alpha - a.alpha) / (b.alpha - a.alpha));
}

// The fewest misses at a rate of false alarms, from below.
const misses = (vertices, alpha) => Math.max(0, 1 - hits(vertices, alpha));

// δ(ε) and ε(δ), both from above; ε is infinite where the numbers say nothing of so small a δ.
function delta(vertices, epsilon) {
  return Math.min(1, Math.max(0, ...vertices.map((v) => v.hits - Math.exp(epsilon) * v.alpha)));
}

function epsilon(vertices, allowed) {
  let least = 0;
  for (const v of vertices) {
    if (v.hits > allowed) least = Math.max(least, v.alpha > 0 ? Math.log((v.hits - allowed) / v.alpha) : Infinity);
  }
  return least;
}

// Where false alarms and misses are equally frequent.
function equalErrors(vertices) {
  let low = 0, high = 1;
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (1 - hits(vertices, middle) > middle) low = middle; else high = middle;
  }
  return low;
}

// What one is sure of after an alarm, at most, and after none, at least, of whom one was sure by `prior` before.
function posterior(vertices, alpha, prior) {
  const caught = prior * hits(vertices, alpha), blamed = (1 - prior) * alpha;
  const missed = prior * (1 - hits(vertices, alpha)), cleared = (1 - prior) * (1 - alpha);
  return {
    alarm: caught + blamed > 0 ? caught / (caught + blamed) : prior,
    silence: missed + cleared > 0 ? missed / (missed + cleared) : prior,
  };
}

// -- the two laws of one release, in closed form ---------------------------------------------------------------------

const PDF = {
  gaussian: (x, sigma) => Math.exp(-x * x / (2 * sigma * sigma)) / (sigma * Math.sqrt(2 * Math.PI)),
  laplace: (x, scale) => Math.exp(-Math.abs(x) / scale) / (2 * scale),
};

function choose(n, k) {
  let found = 1;
  for (let i = 1; i <= k; i++) found *= (n - k + i) / i;
  return found;
}

// Points (x, p, q): the law without the group and with it. With a sample, they are in it with probability `rate`.
function laws(setting) {
  const level = NUMBERS.noise[setting.family][setting.noise];
  const group = NUMBERS.groups[setting.group], rate = NUMBERS.rates[setting.rate];
  if (setting.family === "response") {
    const right = 1 / (1 + Math.exp(-level));
    const yes = (k, p) => choose(group, k) * p ** k * (1 - p) ** (group - k);
    return Array.from({ length: group + 1 }, (_, k) => ({ x: k, p: yes(k, 1 - right), q: yes(k, right) }));
  }
  const reach = (setting.family === "gaussian" ? 3.6 : 5) * level, low = -reach, high = group + reach;
  return Array.from({ length: 401 }, (_, i) => {
    const x = low + (high - low) * i / 400, p = PDF[setting.family](x, level);
    return { x, p, q: (1 - rate) * p + rate * PDF[setting.family](x - group, level) };
  });
}
