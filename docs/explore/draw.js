
// -- drawing -----------------------------------------------------------------------------------------------------------

const WIDE = 460, LEFT = 46, RIGHT = 20;

function element(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A box of a picture with two axes: x and y turn numbers into places.
class Box {
  constructor(svg, top, height, xs, ys, { log = false } = {}) {
    Object.assign(this, { svg, top, height, xs, ys, log });
  }

  x(value) { return LEFT + (WIDE - LEFT - RIGHT) * (value - this.xs[0]) / (this.xs[1] - this.xs[0]); }

  y(value) {
    const [low, high] = this.log ? this.ys.map(Math.log10) : this.ys;
    const at = this.log ? Math.log10(Math.max(value, 1e-300)) : value;
    return this.top + this.height * (1 - Math.min(1, Math.max(0, (at - low) / (high - low))));
  }

  axes(xTicks, yTicks, xLabel, yLabel) {
    for (const { at, text } of yTicks) {
      this.add("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: this.y(at), y2: this.y(at) });
      this.word(LEFT - 6, this.y(at) + 4, text, "tick end");
    }
    const foot = this.top + this.height;
    this.add("line", { class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: foot, y2: foot });
    for (const { at, text } of xTicks) {
      this.add("line", { class: "axis", x1: this.x(at), x2: this.x(at), y1: foot, y2: foot + 4 });
      this.word(this.x(at), foot + 16, text, "tick middle");
    }
    if (xLabel) this.word(WIDE - RIGHT, foot + 31, xLabel, "label end");
    if (yLabel) this.word(LEFT, this.top - 7, yLabel, "label");
  }

  add(name, attributes, ...children) { return this.svg.appendChild(element(name, attributes, ...children)); }
  word(x, y, text, kind) { return this.add("text", { x, y, class: kind }, text); }
  path(points) { return points.map(([x, y], i) => `${i ? "L" : "M"}${this.x(x).toFixed(2)} ${this.y(y).toFixed(2)}`).join(""); }
  line(points, kind) { this.add("path", { class: `line ${kind}`, d: this.path(points) }); }
  area(points, kind) { this.add("path", { class: `area ${kind}`, d: `${this.path(points)}Z` }); }
  dot(x, y, kind) { this.add("circle", { class: `dot ${kind}`, cx: this.x(x), cy: this.y(y), r: 5 }); }
  across(y, kind = "rule") { this.line([[this.xs[0], y], [this.xs[1], y]], kind); }
  upright(x, kind = "rule") { this.line([[x, this.ys[0]], [x, this.ys[1]]], kind); }
}

// At most `count` round numbers from low to high.
function ticks(low, high, count = 5) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) {
    const round = Math.abs(at) < step / 1e6 ? 0 : at;
    found.push({ at: round, text: said(round) });
  }
  return found;
}

const minus = (text) => String(text).replace("-", "−");
const superscript = (n) => [...String(n)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");

// Four digits. Numbers about privacy are rounded by `up` or `down` first, to the safe side.
function said(value) {
  if (!Number.isFinite(value)) return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e5) return minus(Number(value.toPrecision(4)));
  const [digits, power] = value.toExponential(2).split("e");
  const shown = Number(digits) === 1 ? "" : `${minus(Number(digits))} · `;
  return `${shown}10${superscript(Number(power))}`;
}

function rounded(value, how, digits = 3) {
  if (!Number.isFinite(value) || value === 0) return value;
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - digits + 1);
  return Number((how(value / step * (1 - Math.sign(how(0.5) - 0.5) * 1e-12)) * step).toPrecision(digits));
}
const up = (value, digits) => rounded(value, Math.ceil, digits);
const down = (value, digits) => rounded(value, Math.floor, digits);
const percent = (value, how) => `${said(how(100 * value, Math.abs(value) > 0.9 ? 4 : 3))}\u00a0%`;

// The numbers of the page end at δ = 10⁻⁹, of samples a little above it: what is smaller is not told apart.
const FLOOR = 1.1e-9;
function saidDelta(value) {
  if (value > 2e-9) return said(up(value, 3));
  return value > 0 ? "below 2 · 10⁻⁹" : "0";
}

// -- the four pictures -------------------------------------------------------------------------------------------------

function blank(id) {
  const svg = document.getElementById(id);
  svg.replaceChildren();
  return svg;
}

function drawLaws(setting, at) {
  const svg = blank("laws"), points = laws(setting), few = setting.family === "response";
  const xs = few ? [-0.6, points.length - 0.4] : [points[0].x, points.at(-1).x];
  const top = 1.1 * Math.max(...points.map((v) => Math.max(v.p, v.q)));
  const across = few ? points.map((v) => ({ at: v.x, text: String(v.x) })) : ticks(...xs, 6);
  const above = new Box(svg, 20, 150, xs, [0, top]);
  above.axes(across.map(({ at: x }) => ({ at: x, text: "" })), ticks(0, top, 3), "", few ? "probability" : "density");
  for (const [key, kind, shift] of [["p", "first", -1], ["q", "second", 1]]) {
    if (few) {
      const width = 0.28;
      for (const v of points) {
        const left = v.x + shift * 0.16 - width / 2;
        above.area([[left, 0], [left, v[key]], [left + width, v[key]], [left + width, 0]], `${kind} solid`);
      }
    } else {
      const line = points.map((v) => [v.x, v[key]]);
      above.area([[xs[0], 0], ...line, [xs[1], 0]], kind);
      above.line(line, kind);
    }
  }
  const ratios = points.filter((v) => v.p > 0 && v.q > 0).map((v) => [v.x, Math.log(v.p / v.q)]);
  const largest = Math.max(at.epsilon * 1.25, 0.05, 1.2 * Math.max(...ratios.map(([, r]) => Math.abs(r))));
  const below = new Box(svg, 208, 100, xs, [-largest, largest]);
  below.area([[xs[0], -at.epsilon], [xs[0], at.epsilon], [xs[1], at.epsilon], [xs[1], -at.epsilon]], "third");
  below.axes(across, ticks(-largest, largest, 4), few ? "how many of them answer yes" : "answer", "log-ratio of the first law to the second, and the band ± ε");
  if (few) for (const [x, r] of ratios) { below.line([[x, 0], [x, r]], "third thick"); below.dot(x, r, "third"); }
  else below.line(ratios, "third");
}

function drawTradeoff(vertices, at) {
  const svg = blank("tradeoff"), box = new Box(svg, 20, 288, [0, 1], [0, 1]);
  const line = vertices.map((v) => [v.alpha, Math.max(0, 1 - v.hits)]);
  box.area([[0, 0], ...line], "first faint");
  box.axes(ticks(0, 1), ticks(0, 1), "false alarms α", "misses β");
  box.line([[0, 1], [1, 0]], "rule");
  const allowed = delta(vertices, at.epsilon), slope = Math.exp(at.epsilon), turn = (1 - allowed) / (1 + slope);
  box.line([[0, 1 - allowed], [turn, turn], [1 - allowed, 0]], "third dashed");
  box.line(line, "first");
  const equal = equalErrors(vertices);
  box.dot(equal, equal, "hollow");
  box.dot(at.alarms, misses(vertices, at.alarms), "first");
}

function drawProfile(vertices, at) {
  const least = 1e-9, found = epsilon(vertices, at.delta), end = epsilon(vertices, 1e-8);
  const right = Math.min(600, Math.max(Number.isFinite(end) ? 1.08 * end : 600, 1.15 * at.epsilon, 0.02));
  const svg = blank("profile"), box = new Box(svg, 20, 288, [0, right], [least, 1], { log: true });
  const down = [0, -3, -6, -9].map((n) => ({ at: 10 ** n, text: n ? `10${superscript(n)}` : "1" }));
  box.axes(ticks(0, right), down, "ε", "δ");
  const line = Array.from({ length: 481 }, (_, i) => [right * i / 480, delta(vertices, right * i / 480)]);
  box.line(line.filter(([, d], i) => d > FLOOR || (i && line[i - 1][1] > FLOOR)), "first");
  box.across(at.delta);
  box.upright(at.epsilon);
  if (found <= right) box.dot(found, at.delta, "first");
  const spent = delta(vertices, at.epsilon);
  if (spent > FLOOR) box.dot(at.epsilon, spent, "third");
}

function drawOdds(vertices, at) {
  const svg = blank("odds"), box = new Box(svg, 20, 288, [0, 1], [0, 1]);
  const priors = Array.from({ length: 201 }, (_, i) => i / 200);
  const after = priors.map((p) => posterior(vertices, at.alarms, p));
  const high = priors.map((p, i) => [p, after[i].alarm]), low = priors.map((p, i) => [p, after[i].silence]);
  box.area([...high, ...low.reverse()], "first faint");
  const tenths = ticks(0, 1).map(({ at: t }) => ({ at: t, text: `${Math.round(100 * t)} %` }));
  box.axes(tenths, tenths, "sure before", "sure after");
  box.line([[0, 0], [1, 1]], "rule");
  box.line(high, "second");
  box.line(low, "first");
  const here = posterior(vertices, at.alarms, at.prior);
  box.upright(at.prior);
  box.dot(at.prior, here.alarm, "second");
  box.dot(at.prior, here.silence, "first");
}

// -- sliders and words -------------------------------------------------------------------------------------------------

const ALARMS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5];
const PRIORS = [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
const NAMES = {
  gaussian: ["Gaussian noise", "σ"],
  laplace: ["Laplace noise", "scale b"],
  response: ["Randomized response", "ε of one answer"],
};

const stops = (family) => ({
  noise: NUMBERS.noise[family], rate: NUMBERS.rates, count: NUMBERS.counts, group: NUMBERS.groups,
  epsilon: NUMBERS.epsilons, delta: NUMBERS.deltas, alarms: ALARMS, prior: PRIORS,
});

const slider = (name) => document.getElementById(name);
const family = () => document.querySelector('input[name="family"]:checked').value;

function words(name, value) {
  if (name === "count") return value.toLocaleString("en");
  if (name === "rate") return value === 1 ? "everybody" : `${said(100 * value)}\u00a0%`;
  if (name === "alarms" || name === "prior") return `${said(100 * value)}\u00a0%`;
  return said(value);
}

function read() {
  const kind = family(), all = stops(kind), setting = { family: kind }, at = {};
  // A sample and a group together are in the library, not on the page.
  slider("rate").disabled = kind === "response";
  slider("group").disabled = kind !== "response" && Number(slider("rate").value) > 0;
  for (const name of Object.keys(all)) {
    const input = slider(name);
    input.max = all[name].length - 1;
    const index = input.disabled ? 0 : Number(input.value), value = all[name][index];
    input.setAttribute("aria-valuetext", words(name, value));
    document.querySelector(`output[for="${name}"]`).textContent = words(name, value);
    if (["noise", "rate", "count", "group"].includes(name)) setting[name] = index; else at[name] = value;
  }
  document.getElementById("noise-name").textContent = NAMES[kind][1];
  return { setting, at };
}

// What the page says of a setting: numbers on the safe side, for the words below and for those who check.
function readings(setting, at) {
  const vertices = polygon(promises(setting));
  return {
    epsilon: epsilon(vertices, at.delta), delta: delta(vertices, at.epsilon), misses: misses(vertices, at.alarms),
    equal: equalErrors(vertices), ...posterior(vertices, at.alarms, at.prior),
  };
}

function tell(id, text) { document.getElementById(id).textContent = text; }

function show() {
  const { setting, at } = read(), vertices = polygon(promises(setting)), found = readings(setting, at);
  drawLaws(setting, at);
  drawTradeoff(vertices, at);
  drawProfile(vertices, at);
  drawOdds(vertices, at);
  const most = (value) => (Number.isFinite(value) ? said(up(value, 4)) : "more than 600");
  tell("say-epsilon", most(found.epsilon));
  tell("say-epsilon-at", `ε at δ = ${said(at.delta)}`);
  tell("say-delta", saidDelta(found.delta));
  tell("say-delta-at", `δ at ε = ${said(at.epsilon)}`);
  tell("say-misses", percent(found.misses, down));
  tell("say-misses-at", `missed, at least, at ${words("alarms", at.alarms)} false alarms`);
  tell("say-alarm", percent(found.alarm, up));
  tell("say-alarm-at", `sure after an alarm, at most; ${words("prior", at.prior)} before`);
  const size = NUMBERS.groups[setting.group], people = size === 1 ? "the person" : `the ${size} people`;
  tell("key-first", setting.family === "response" ? `${people}: no` : `without ${people}`);
  tell("key-second", setting.family === "response" ? `${people}: yes` : `with ${people}`);
  tell("note-tradeoff", `Hollow dot: false alarms and misses are equally frequent, each at least ${percent(found.equal, down)}. ` +
    `Dashed: what the one promise (ε = ${said(at.epsilon)}, δ ${saidDelta(found.delta).startsWith("below") ? "" : "= "}${saidDelta(found.delta)}) says by itself.`);
  tell("note-odds", `An alarm with ${words("alarms", at.alarms)} false alarms moves ${words("prior", at.prior)} to at most ` +
    `${percent(found.alarm, up)}, its absence to at least ${percent(found.silence, down)}.`);
}

for (const input of document.querySelectorAll("input")) input.addEventListener("input", show);
show();
