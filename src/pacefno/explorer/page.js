// The page: what is chosen and how it is moved, drawings, and the curve. All numbers come from the worker.
"use strict";
const $ = (id) => document.getElementById(id);
const AXES = ["x", "y", "z"], ARROWS = { x: "→", y: "↑", z: "↗" };
const MARGIN = 10; // pixels above and below a line plot
const DASHES = [[], [7, 4], [], [2, 3]];
const DRAGS = ["both", "shifts", "boosts"];
const state = { problem: null, drags: 0, about: null, sample: 0, channel: 0, xi: [], mirrored: false, path: [], length: 0, shown: null, range: null };
let bundle = null, worker = null, opened = 0, sent = 0, waiting = false, wanted = false, playing = 0;

// --- colours: uniform steps in OKLab, blue to orange about a neutral middle; cividis where nothing is signed ---

const dark = matchMedia("(prefers-color-scheme: dark)");
const CIVIDIS = "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c88789b9476aba072bcae6ccdbb63dec958f0d846fee838";
const linear = (c) => (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055);
function fromOklab(L, a, b) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3, s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s].map((c) => Math.round(255 * linear(Math.min(1, Math.max(0, c)))));
}
function makeMaps() {
  const [middle, low, high] = dark.matches ? [[0.23, 0, 0], [0.8, -0.06, -0.11], [0.8, 0.07, 0.13]] : [[0.965, 0, 0], [0.36, -0.03, -0.15], [0.42, 0.1, 0.085]];
  const anchors = CIVIDIS.match(/../g).map((h) => parseInt(h, 16)), last = anchors.length / 3 - 1;
  const maps = { signed: new Uint8ClampedArray(768), plain: new Uint8ClampedArray(768) };
  for (let i = 0; i < 256; i++) {
    const t = i / 127.5 - 1, end = t < 0 ? low : high, share = Math.abs(t);
    maps.signed.set(fromOklab(...middle.map((v, k) => v + (end[k] - v) * share)), 3 * i);
    const at = (i / 255) * last, k = Math.min(last - 1, Math.floor(at));
    for (let c = 0; c < 3; c++) maps.plain[3 * i + c] = anchors[3 * k + c] + (at - k) * (anchors[3 * k + 3 + c] - anchors[3 * k + c]);
  }
  return maps;
}
let maps = makeMaps();
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// --- drawing ---------------------------------------------------------------------------------------------

function fitted(canvas) {
  const ratio = Math.min(3, devicePixelRatio || 1), width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}

const scratch = document.createElement("canvas");
function drawImage(canvas, values, map, centre, radius) {
  const context = fitted(canvas), [nx, ny] = state.about.grid;
  Object.assign(scratch, { width: nx, height: ny });
  const pixels = new ImageData(nx, ny);
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      const share = (values[i * ny + j] - centre) / radius, at = 4 * ((ny - 1 - j) * nx + i);
      const index = 3 * Math.round(127.5 * (1 + Math.max(-1, Math.min(1, share || 0))));
      for (let c = 0; c < 3; c++) pixels.data[at + c] = map[index + c];
      pixels.data[at + 3] = 255;
    }
  }
  scratch.getContext("2d").putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(scratch, 0, 0, canvas.clientWidth, canvas.clientHeight);
}

function drawLines(canvas, lines, centre, radius) {
  const context = fitted(canvas), width = canvas.clientWidth, height = canvas.clientHeight;
  const y = (v) => height / 2 - ((v - centre) / radius) * (height / 2 - MARGIN);
  const marks = height < 80 ? [] : ticks(centre - radius, centre + radius, 3);
  Object.assign(context, { strokeStyle: css("--strong"), lineWidth: 1, globalAlpha: 0.6 });
  for (const v of marks) { context.beginPath(); context.moveTo(0, y(v)); context.lineTo(width, y(v)); context.stroke(); }
  context.globalAlpha = 1;
  for (const { values, colour, dash = [], thick = 2 } of lines) {
    context.beginPath();
    values.forEach((v, i) => context.lineTo(((i + 0.5) / values.length) * width, y(v)));
    Object.assign(context, { strokeStyle: colour, lineWidth: thick, lineJoin: "round" });
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
  }
  // Numbers last and with a rim, so that no line runs through them.
  Object.assign(context, { font: "11px system-ui, sans-serif", fillStyle: css("--soft"), strokeStyle: css("--card"), lineWidth: 4 });
  for (const v of marks) {
    const text = String(Number(v.toPrecision(3))).replace("-", "−");
    context.strokeText(text, 5, y(v) - 4);
    context.fillText(text, 5, y(v) - 4);
  }
}

function ticks(low, high, about) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999), found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) found.push(v);
  return found;
}

function drawBar(canvas, map) {
  Object.assign(canvas, { width: 256, height: 1 });
  const pixels = new ImageData(256, 1);
  for (let i = 0; i < 256; i++) pixels.data.set([map[3 * i], map[3 * i + 1], map[3 * i + 2], 255], 4 * i);
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

// Two digits of what the scale spans: next to 2.1 an end at -0.0087 is 0.
const short = (v, span) => String(Number(v.toFixed(Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(span || 1))))))).replace("-", "−").replace(/^−0$/, "0");
const percent = (e) => !Number.isFinite(e) ? "not finite" : e >= 99.95 ? "> 9999 %" : `${(100 * e).toPrecision(e >= 1 ? 3 : 2).replace(/e.*/, "")} %`;

function draw() {
  const { about, shown, channel } = state;
  if (!shown) return;
  const points = about.grid.reduce((a, b) => a * b, 1), out = about.output_channels.length, last = about.output_size - out;
  // The newest snapshot of a channel; the output may have other channels than the input.
  const given = (v) => v && v.subarray((about.input_size - about.input_channels.length + channel) * points).subarray(0, points);
  const made = (v) => v.subarray((last + channel) * points).subarray(0, points);
  const input = given(shown.input), truth = made(shown.truth), signed = about.input_channels[channel].signed;
  const radius = state.range[channel].radius;
  // A boost adds a constant: colours stay with the pattern, and the scale says the numbers.
  const middle = (v) => (signed ? v.reduce((a, b) => a + b, 0) / v.length : state.range[channel].centre);
  const here = middle(input), map = signed ? maps.signed : maps.plain, canonical = given(shown.canonical);
  const line = about.grid.length === 1, ink = css("--ink"), grey = css("--truth");
  if (line) {
    const { centre } = state.range[channel], tall = height();
    drawLines($("input"), [{ values: input, colour: ink }], centre, tall);
    if (canonical) drawLines($("canonical"), [{ values: canonical, colour: css("--m2") }], centre, tall);
    drawLines($("truth"), [{ values: truth, colour: ink }], centre, tall);
  } else {
    drawImage($("input"), input, map, here, radius);
    if (canonical) drawImage($("canonical"), canonical, map, middle(canonical), radius);
    drawImage($("truth"), truth, map, here, radius);
    drawBar($("bar"), map);
    drawBar($("error-bar"), maps.signed);
    $("low").textContent = `${about.input_channels[channel].name} ${short(here - radius, radius)}`;
    $("high").textContent = short(here + radius, radius);
    $("error-low").textContent = `error below ${short(-radius / 2, radius)}`;
    $("error-high").textContent = `above ${short(radius / 2, radius)}`;
  }
  const differences = shown.predictions.map((v) => made(v).map((x, k) => x - truth[k]));
  // Lines of errors share a scale that holds them all; it grows by doubling, so that it rests while one drags.
  const farthest = Math.max(...differences.map((d) => d.reduce((a, b) => Math.max(a, Math.abs(b)), 0)));
  const room = (radius / 4) * 2 ** Math.max(0, Math.ceil(Math.log2((4 * farthest) / radius || 1)));
  const show = (canvas, values, colour) => {
    if (!canvas.clientWidth) return; // not shown at this width
    if (line) drawLines(canvas, [{ values: truth, colour: grey, dash: [4, 4] }, ...(values ? [{ values, colour }] : [])], state.range[channel].centre, height());
    else drawImage(canvas, values ?? truth, map, here, radius);
  };
  show($("thumb-truth"), null);
  about.models.forEach((model, i) => {
    const values = made(shown.predictions[i]), colour = css(hue(i));
    show($(`prediction-${i}`), values, colour);
    show($(`thumb-${i}`), values, colour);
    if (line) drawLines($(`difference-${i}`), [{ values: differences[i], colour }], 0, room);
    else drawImage($(`difference-${i}`), differences[i], maps.signed, 0, radius / 2);
  });
  drawCurve();
}

// Of a line plot, half of it: room for every boost, which lifts the line.
const boost = () => state.about.coordinates.findIndex((c) => c.kind === "velocity");
const height = () => state.range[state.channel].radius + (state.about.coordinates[boost()]?.reach ?? 0);
const hue = (i) => `--m${state.about.models[i].hue % 6}`;

// --- the curve -----------------------------------------------------------------------------------------

function drawCurve() {
  const canvas = $("curve"), context = fitted(canvas), width = canvas.clientWidth, height = canvas.clientHeight;
  const { path, about } = state, left = 52, right = 12, top = 8, bottom = 34;
  const all = path.flatMap((p) => p.errors).filter((e) => e > 0 && Number.isFinite(e));
  const floor = Math.floor(Math.log10(Math.min(0.01, ...all)) + 1e-9), roof = Math.max(0.3, Math.log10(Math.max(...all, 1)) + 0.1);
  const end = Math.max(2, state.length), x = (d) => left + (d / end) * (width - left - right);
  const y = (e) => height - bottom - ((Math.log10(Math.max(e, 10 ** floor)) - floor) / (roof - floor)) * (height - top - bottom);
  context.fillStyle = css("--tint");
  for (const { seen } of path) if (seen) context.fillRect(x(seen[0]), top, Math.max(1, x(seen[1]) - x(seen[0])), height - top - bottom);
  if (path.length < 2 && (!path.length || path[0].seen)) context.fillRect(x(0), top, x(1) - x(0), height - top - bottom);
  context.font = "12px system-ui, sans-serif";
  context.lineWidth = 1;
  for (let decade = floor; decade <= roof; decade++) {
    const at = y(10 ** decade);
    context.strokeStyle = css("--line");
    context.beginPath(); context.moveTo(left, at); context.lineTo(width - right, at); context.stroke();
    context.fillStyle = css("--soft");
    context.textAlign = "right";
    context.fillText(`${Number((100 * 10 ** decade).toPrecision(1))} %`, left - 7, at + 4);
  }
  context.textAlign = "left";
  context.fillStyle = css("--soft");
  context.fillText(path.length < 2 ? "drag the input, or play a drag" : "how far you moved it →", left, height - 10);
  about.models.forEach((model, i) => {
    Object.assign(context, { strokeStyle: css(hue(i)), fillStyle: css(hue(i)), lineWidth: 2.2, lineJoin: "round" });
    context.setLineDash(DASHES[i % DASHES.length]);
    context.beginPath();
    path.forEach((p) => Number.isFinite(p.errors[i]) && context.lineTo(x(p.at), y(p.errors[i])));
    context.stroke();
    context.setLineDash([]);
    const now = path.at(-1);
    if (now && Number.isFinite(now.errors[i])) { context.beginPath(); context.arc(x(now.at), y(now.errors[i]), 4.2, 0, 7); context.fill(); }
  });
}

// Along a coordinate one unit is as far as in training, or a quarter of what can be reached where nothing was moved in training.
const unit = (c) => c.range || c.reach / 4;
const wrapped = (v, period) => (period ? v - period * Math.round(v / period) : v);
const inside = (xi) => state.about.coordinates.every((c, i) => Math.abs(wrapped(xi[i], c.period)) <= c.range * (1 + 1e-6));

// From where to where the last step of the path was within training, in the units of the curve: where it crosses the border is looked up
// in small steps, because frames that the models did not keep up with are missing in between.
function seen(from, to, step) {
  const STEPS = 32, within = [];
  for (let k = 0; k <= STEPS; k++) if (inside(from.map((a, i) => a + ((to[i] - a) * k) / STEPS))) within.push(k / STEPS);
  return within.length ? [within[0], within.at(-1)].map((share) => state.length - step * (1 - share)) : null;
}

function record(result) {
  const { path } = state, before = path.at(-1);
  const step = before ? Math.hypot(...state.about.coordinates.map((c, i) => (result.xi[i] - before.xi[i]) / unit(c))) : 0;
  if (before && !step) path.pop(); // the same place: a mirror, or another look
  state.length += step;
  path.push({ at: state.length, xi: result.xi, errors: result.errors, seen: seen(before && step ? before.xi : result.xi, result.xi, step) });
  if (path.length > 4000) path.splice(1, 1);
}

// --- words and numbers ----------------------------------------------------------------------------------

function describe(xi, coordinates = state.about.coordinates) {
  const text = coordinates.map((c, i) => {
    const v = wrapped(xi[i], c.period);
    if (c.kind === "angle") return `turned by ${Math.round((v * 180) / Math.PI)}°`;
    const text = v.toFixed(2).replace("-", "−").replace("−0.00", "0.00");
    return c.kind === "shift" ? `${c.arrow} ${text}` : `boost ${c.arrow} ${text}`;
  }).join(", ");
  return coordinates[0]?.kind === "shift" ? `shift ${text}` : text;
}

function tell(result) {
  const { about } = state, app = $("app");
  Object.assign(app.dataset, { problem: about.id, sample: result.sample, mirrored: result.mirrored, xi: JSON.stringify(result.xi), frame: result.id, milliseconds: result.milliseconds.toFixed(1) });
  about.models.forEach((model, i) => {
    const cell = $(`error-${i}`);
    cell.dataset.error = result.errors[i];
    cell.textContent = $(`score-${i}`).textContent = percent(result.errors[i]);
  });
  const within = inside(result.xi);
  $("inside").dataset.inside = within ? "yes" : "no";
  $("inside").textContent = within ? "seen in training" : "beyond training";
  $("where").textContent = describe(result.xi);
  $("timing").textContent = `computed in ${Math.round(result.milliseconds)} ms on your device`;
  if (result.frame) {
    Object.assign($("frame").dataset, { xi: JSON.stringify(result.frame.xi), confidence: result.frame.confidence });
    $("frame").textContent = result.frame.confidence > 0 ? `found: ${describe(result.frame.xi)}` : "this field does not tell where it is";
  }
  const text = `${describe(result.xi)}: error ${about.models.map((m, i) => `${m.title} ${percent(result.errors[i])}`).join(", ")}`;
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { $("live").textContent = text; }, 700); // read aloud once it rests
}

// --- asking the worker: the newest wish only, the rest is dropped ------------------------------------------

function ask() {
  if (!state.about || state.problem === null) return;
  if (waiting) { wanted = true; return; }
  waiting = true;
  wanted = false;
  sent += 1;
  worker.postMessage({ type: "frame", id: sent, opened, sample: state.sample, xi: state.xi, mirrored: state.mirrored });
}

function receive({ data }) {
  if (data.type === "failed") {
    waiting = false;
    return complain(data.during === "start" ? `The models cannot run in this browser (${data.text}). A current Firefox, Chrome, Edge or Safari can.` : `This problem cannot be shown: ${data.text}`);
  }
  if (data.type === "opened" && data.id === opened) {
    $("app").classList.remove("busy");
    waiting = false;
    return ask();
  }
  if (data.type !== "frame" || data.opened !== opened) return;
  waiting = false;
  if (wanted || data.sample !== state.sample) ask(); // the worker goes on while this frame is drawn
  if (data.sample !== state.sample) return;
  state.shown = data;
  record(data);
  tell(data);
  requestAnimationFrame(draw);
}

function complain(text) {
  $("notice").textContent = text;
  $("notice").hidden = false;
}

// --- choices --------------------------------------------------------------------------------------------

function choices(id, names, chosen, choose) {
  const place = $(id);
  place.querySelectorAll("button").forEach((b) => b.remove());
  names.forEach((name, i) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: name, onclick: () => choose(i) });
    button.dataset.index = i;
    button.setAttribute("aria-pressed", i === chosen);
    place.append(button);
  });
  place.hidden = names.length < (id === "problems" ? 1 : 2);
}
const press = (id, chosen) => $(id).querySelectorAll("button").forEach((b, i) => b.setAttribute("aria-pressed", i === chosen));

const stored = new Map(); // base64 is decoded once
function bytes(id) {
  const text = $(id).textContent, raw = atob(text.trim()), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
const blob = (id) => { if (!stored.has(id)) stored.set(id, bytes(id)); return stored.get(id); };
const floats = async (id) => new Float32Array(await new Response(new Blob([blob(id)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());

async function openProblem(index) {
  stop();
  const about = bundle.problems[index];
  Object.assign(state, { problem: index, about, sample: 0, channel: 0, mirrored: false, shown: null });
  opened += 1;
  waiting = true; // until it is open
  press("problems", index);
  choices("samples", Array.from({ length: about.samples }, (_, i) => String(i + 1)), 0, openSample);
  choices("channels", about.input_channels.map((c) => c.label), 0, (i) => { state.channel = i; press("channels", i); draw(); });
  state.inputs = await floats(about.blobs.input);
  buildModels();
  buildSliders();
  const line = about.grid.length === 1;
  document.body.classList.toggle("line", line);
  for (const id of ["input", "canonical", "truth"]) $(id).className = line ? "wide" : "square";
  $("mirror").hidden = !about.mirror;
  choices("drags", DRAGS, state.drags, (i) => { state.drags = i; press("drags", i); });
  $("drags").hidden = line || boost() < 0; // a line is shifted sideways and boosted up and down
  $("input-sub").textContent = line ? (boost() < 0 ? "left and right, or use arrow keys" : "sideways: shift, up and down: boost") : "in any direction, or use arrow keys";
  $("truth-sub").textContent = `${about.horizon_text} later, moved along`;
  $("per-channel").textContent = about.per_channel ? ", averaged over the channels" : "";
  const paces = about.models.some((m) => m.framed);
  $("canonical").parentElement.hidden = !paces;
  $("canonical").closest(".stage").classList.toggle("alone", !paces);
  $("footer").textContent = `${about.title}, ${about.grid.join(" × ")} points. ${about.note} Built by pacefno ${bundle.version}; the models run with onnxruntime-web ${bundle.runtime}.`;
  $("app").classList.add("busy");
  $("inside").textContent = "starting the models …";
  $("inside").dataset.inside = "no";
  $("where").textContent = "";
  const programs = Object.fromEntries(Object.entries(about.blobs.programs).map(([name, id]) => [name, blob(id)]));
  worker.postMessage({ type: "open", id: opened, about, blobs: { programs, input: blob(about.blobs.input), target: blob(about.blobs.target) } });
  openSample(0);
}

function openSample(index) {
  stop();
  state.sample = index;
  press("samples", index);
  const { about } = state, points = about.grid.reduce((a, b) => a * b, 1), count = about.input_channels.length;
  const from = (index * about.input_size + about.input_size - count) * points;
  state.range = about.input_channels.map((c, i) => {
    const values = state.inputs.subarray(from + i * points).subarray(0, points);
    let low = Infinity, high = -Infinity, sum = 0;
    for (const v of values) { low = Math.min(low, v); high = Math.max(high, v); sum += v; }
    const centre = c.signed ? sum / points : (low + high) / 2;
    return { centre, radius: 1.02 * Math.max(high - centre, centre - low) || 1 };
  });
  reset();
}

function reset() {
  stop();
  state.xi = state.about.coordinates.map(() => 0);
  setMirror(false);
  clearPath();
  showSliders();
  ask();
}
function clearPath() { state.path = []; state.length = 0; if (state.shown) record(state.shown); drawCurve(); }
function setMirror(on) { state.mirrored = on; $("mirror").setAttribute("aria-pressed", on); }

function buildModels() {
  const place = $("models"), { models } = state.about;
  place.replaceChildren();
  place.style.setProperty("--count", Math.min(3, Math.max(2, models.length)));
  $("key").replaceChildren();
  $("scores").replaceChildren();
  const shape = state.about.grid.length === 1 ? "wide" : "square", right = document.createElement("span");
  right.innerHTML = `<canvas id="thumb-truth" class="${shape}"></canvas>right answer`;
  $("scores").append(right);
  models.forEach((model, i) => {
    const score = document.createElement("span");
    score.style.color = `var(${hue(i)})`;
    score.innerHTML = `<canvas id="thumb-${i}" class="${shape}"></canvas><b id="score-${i}"></b><br>`;
    score.append(model.title.split(":")[0]);
    $("scores").append(score);
    const card = document.createElement("section");
    card.className = "card model";
    card.style.setProperty("--hue", `var(${hue(i)})`);
    card.setAttribute("aria-labelledby", `model-${i}`);
    card.innerHTML = `<div class="head"><h2 id="model-${i}"></h2><output class="error" id="error-${i}"></output></div><div class="pair"><figure><canvas id="prediction-${i}" role="img"></canvas><figcaption>prediction</figcaption></figure><figure><canvas id="difference-${i}" role="img"></canvas><figcaption>prediction − right answer</figcaption></figure></div>`;
    card.querySelector("h2").textContent = model.title;
    card.querySelector("output").dataset.model = model.id;
    card.querySelectorAll("canvas").forEach((c, k) => { c.className = shape; c.setAttribute("aria-label", `${k ? "Error" : "Prediction"} of ${model.title}`); });
    if (state.about.grid.length === 1) card.querySelector("figcaption").textContent = "prediction (line) and right answer (dashes)";
    place.append(card);
    const item = document.createElement("li");
    item.innerHTML = `<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke="var(${hue(i)})" stroke-width="2.6" stroke-dasharray="${DASHES[i % DASHES.length]}"/></svg>`;
    item.append(model.title);
    $("key").append(item);
  });
  const shade = document.createElement("li");
  shade.innerHTML = '<svg width="20" height="12" aria-hidden="true"><rect width="20" height="12" rx="2" fill="var(--tint)" stroke="var(--line)"/></svg>seen in training';
  $("key").append(shade);
}

function buildSliders() {
  const place = $("sliders");
  place.replaceChildren();
  state.about.coordinates.forEach((c, i) => {
    if (c.kind === "shift") return;
    const row = document.createElement("label");
    row.className = "slide";
    row.innerHTML = `<span></span><span class="track"><i></i><input type="range" step="any"></span><output></output>`;
    row.firstChild.textContent = c.label;
    const range = row.querySelector("input"), share = Math.min(1, c.range / c.reach);
    Object.assign(range, { min: -c.reach, max: c.reach, value: 0, id: `slider-${c.name}` });
    range.dataset.coordinate = i;
    Object.assign(row.querySelector("i").style, { left: `${50 - 50 * share}%`, right: `${50 - 50 * share}%` });
    row.querySelector("i").hidden = !c.range;
    range.oninput = () => { stop(); state.xi[i] = Number(range.value); showSliders(); ask(); };
    place.append(row);
  });
}

function showSliders() {
  document.querySelectorAll("#sliders input").forEach((range) => {
    const i = Number(range.dataset.coordinate), c = state.about.coordinates[i], v = state.xi[i];
    range.value = v;
    const text = c.kind === "angle" ? `${Math.round((v * 180) / Math.PI)}°` : v.toFixed(2).replace("-", "−");
    range.setAttribute("aria-valuetext", text);
    range.closest("label").querySelector("output").textContent = text;
  });
}

// --- moving ---------------------------------------------------------------------------------------------

function shiftBy(distances) {
  state.about.coordinates.forEach((c, i) => { if (c.kind === "shift") state.xi[i] += distances[AXES.indexOf(c.name)] ?? 0; });
  ask();
}

function boostBy(i, change) {
  const { reach } = state.about.coordinates[i];
  state.xi[i] = Math.max(-reach, Math.min(reach, state.xi[i] + change));
  showSliders();
}

// A picture that is dragged by half its size is boosted as far as one can: a shift alone changes little for a model that has seen the same
// pattern everywhere.
function moveBy(right, up) {
  const shifts = state.drags !== 2, boosts = state.drags !== 1;
  state.about.coordinates.forEach((c, i) => {
    const along = c.arrow === "→" ? right : c.arrow === "↑" ? up : (right + up) / 2;
    if (c.kind === "velocity" && boosts) boostBy(i, 2 * c.reach * along);
  });
  shiftBy(shifts || boost() < 0 ? [right, up] : [0, 0]);
}

function watchInput() {
  const canvas = $("input");
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (!state.about || event.button > 0) return;
    stop();
    canvas.setPointerCapture(event.pointerId);
    last = [event.clientX, event.clientY];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last || !canvas.hasPointerCapture(event.pointerId)) return;
    const up = last[1] - event.clientY, i = boost();
    if (state.about.grid.length > 1) {
      moveBy((event.clientX - last[0]) / canvas.clientWidth, up / canvas.clientHeight);
    } else {
      if (i >= 0) boostBy(i, (up * height()) / (canvas.clientHeight / 2 - MARGIN));
      shiftBy([(event.clientX - last[0]) / canvas.clientWidth]);
    }
    last = [event.clientX, event.clientY];
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { last = null; });
  canvas.addEventListener("keydown", (event) => {
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }, way = ways[event.key];
    if (event.key === "Home" && state.about) { event.preventDefault(); reset(); }
    if (!way || !state.about) return;
    event.preventDefault();
    stop();
    if (way[1] && state.about.grid.length === 1 && boost() >= 0) boostBy(boost(), (way[1] * state.about.coordinates[boost()].reach) / (event.shiftKey ? 5 : 50));
    const steps = way.map((w, axis) => w * (event.shiftKey ? 1 / 8 : 1 / (state.about.grid[axis] ?? 1)));
    if (state.about.grid.length > 1) moveBy(...steps);
    else shiftBy(steps);
  });
}

// One round tour far out along every coordinate and back, so that nobody has to touch anything.
function play() {
  if (playing) return stop();
  reset();
  $("play").setAttribute("aria-pressed", true);
  $("play").textContent = "❚❚ Stop";
  const began = performance.now(), { coordinates } = state.about, seconds = 9;
  const step = (now) => {
    const t = Math.min(1, (now - began) / (1000 * seconds));
    state.xi = coordinates.map((c, i) => {
      const far = c.kind === "shift" ? 0.36 : 0.75 * c.reach, turn = 2 * Math.PI * t;
      return far * (i % 2 ? Math.sin(turn) * Math.sin(turn / 2) : Math.sin(turn / 2) ** 2 * (c.kind === "shift" ? 1 : Math.cos(turn / 2 + 0.4)));
    });
    showSliders();
    ask();
    playing = t < 1 ? requestAnimationFrame(step) : 0;
    if (!playing) stop();
  };
  playing = requestAnimationFrame(step);
}
function stop() {
  cancelAnimationFrame(playing);
  playing = 0;
  $("play").setAttribute("aria-pressed", false);
  $("play").textContent = "▶ Play a drag";
}

// --- beginning ------------------------------------------------------------------------------------------

function begin() {
  const found = $("bundle");
  if (!found) return complain("This page has no models in it. Build it with: pacefno explore RUN [RUN ...] --output page.html");
  if (typeof WebAssembly !== "object" || typeof Worker === "undefined" || typeof DecompressionStream === "undefined") {
    return complain("The models need WebAssembly, workers and DecompressionStream, which this browser lacks or has switched off. A current Firefox, Chrome, Edge or Safari has them.");
  }
  bundle = JSON.parse(found.textContent);
  if (!bundle.problems.length) return complain("This page has no models in it. Build it with: pacefno explore RUN [RUN ...] --output page.html");
  try {
    worker = new Worker(URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" })));
  } catch (error) {
    return complain(`This browser does not let a page start a worker (${error.message}). Open it in a current Firefox, Chrome, Edge or Safari.`);
  }
  worker.onmessage = receive;
  worker.onerror = (event) => complain(`The models stopped: ${event.message || "the worker could not start"}. Load the page again.`);
  $("app").hidden = false;
  worker.postMessage({ type: "start", script: bytes("runtime-script"), wasm: bytes("runtime-wasm") });
  choices("problems", bundle.problems.map((p) => p.title), 0, openProblem);
  watchInput();
  $("play").onclick = play;
  $("reset").onclick = reset;
  $("clear").onclick = clearPath;
  $("mirror").onclick = () => { setMirror(!state.mirrored); ask(); };
  addEventListener("resize", () => requestAnimationFrame(draw));
  dark.addEventListener("change", () => { maps = makeMaps(); draw(); });
  const named = bundle.problems.findIndex((p) => `#${p.id}` === location.hash);
  openProblem(Math.max(0, named));
}
begin();
