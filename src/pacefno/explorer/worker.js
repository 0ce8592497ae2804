// Runs all programs, so that the page never waits: motions, models and errors of one frame at a time.
"use strict";
let ort = null;
let problem = null; // what is described in the bundle, with its sessions and samples
const gunzip = async (bytes) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
const handlers = { start, open, frame };
// One message after the other: a frame waits for the problem that it belongs to.
let queue = Promise.resolve();
onmessage = ({ data }) => {
  queue = queue.then(() => handlers[data.type](data)).catch((error) => postMessage({ type: "failed", during: data.type, id: data.id, text: String(error?.message ?? error) }));
};

async function start({ script, wasm }) {
  const url = URL.createObjectURL(new Blob([await gunzip(script)], { type: "text/javascript" }));
  ort = await import(url);
  ort.env.wasm.wasmBinary = (await gunzip(wasm)).buffer;
  ort.env.wasm.numThreads = 1; // more threads need a server with special headers
  ort.env.wasm.proxy = false;
  ort.env.logLevel = "error";
  postMessage({ type: "started" });
}

async function open({ id, about, blobs }) {
  if (problem) for (const session of Object.values(problem.sessions)) await session.release();
  problem = null;
  const sessions = {};
  for (const [name, bytes] of Object.entries(blobs.programs)) {
    sessions[name] = await ort.InferenceSession.create(await gunzip(bytes), { executionProviders: ["wasm"], graphOptimizationLevel: "all" });
  }
  const read = async (bytes) => new Float32Array((await gunzip(bytes)).buffer);
  const samples = { input: await read(blobs.input), target: await read(blobs.target) };
  for (const [name, channels] of [["input", about.input_size], ["target", about.output_size]]) {
    const expected = about.samples * channels * about.grid.reduce((a, b) => a * b, 1);
    if (samples[name].length !== expected) {
      throw new Error(`the samples of ${about.title} do not have the grid ${about.grid.join(" x ")} of its models (${samples[name].length} numbers instead of ${expected}): build the page again`);
    }
  }
  problem = { id, about, sessions, samples };
  postMessage({ type: "opened", id });
}

const part = (values, index, size) => values.slice(index * size, (index + 1) * size);
const run = (name, inputs) => problem.sessions[name].run(inputs);
const field = (values, channels) => new ort.Tensor("float32", values, [1, channels, ...problem.about.grid]);

async function frame({ id, opened, sample, xi, mirrored }) {
  if (!problem || problem.id !== opened) return; // of a problem that is no longer looked at
  const { about, samples } = problem, began = performance.now();
  const points = about.grid.reduce((a, b) => a * b, 1);
  let given = part(samples.input, sample, about.input_size * points);
  let wanted = part(samples.target, sample, about.output_size * points);
  if (mirrored) {
    given = mirror(given, about.mirror.axes, about.mirror.mirrored, about.mirror.input);
    wanted = mirror(wanted, about.mirror.axes, about.mirror.mirrored, about.mirror.output);
  }
  const coordinates = new ort.Tensor("float64", Float64Array.from(xi), [1, xi.length]);
  const { moved } = await run("move-input", { field: field(given, about.input_size), coordinates });
  const { moved: truth } = await run("move-output", { field: field(wanted, about.output_size), coordinates });
  const result = { type: "frame", id, opened, sample, xi, mirrored, input: moved.data, truth: truth.data, predictions: [], errors: [], frame: null, canonical: null };
  for (const model of about.models) {
    const made = await run(model.id, { field: moved }), values = made.prediction.data;
    result.predictions.push(values);
    result.errors.push(relativeError(values, truth.data, wanted, about, points));
    if (model.framed && !result.canonical) {
      result.canonical = made.canonical.data;
      result.frame = { xi: Array.from(made.coordinates.data, Number), confidence: Number(made.confidence.data[0]) };
    }
  }
  result.milliseconds = performance.now() - began;
  const arrays = [result.input, result.truth, result.canonical, ...result.predictions].filter(Boolean);
  postMessage(result, [...new Set(arrays.map((array) => array.buffer))]);
}

// |prediction - truth| / |truth before it was moved|: pooled, or the mean over channels of each one's.
function relativeError(prediction, truth, unmoved, about, points) {
  const count = about.per_channel ? about.output_size : 1, size = (about.output_size * points) / count;
  let total = 0;
  for (let c = 0; c < count; c++) {
    let difference = 0, norm = 0;
    for (let i = c * size; i < (c + 1) * size; i++) {
      difference += (prediction[i] - truth[i]) ** 2;
      norm += unmoved[i] ** 2;
    }
    total += Math.sqrt(difference / norm);
  }
  return total / count;
}

// A mirror of the grid, i -> -i mod n along some axes after exchanging them, and what it does to the channels:
// `matrix` is the channels' representation, which for a mirror exchanges channels and changes signs.
function mirror(values, axes, mirrored, matrix) {
  const { grid } = problem.about, dim = grid.length;
  const points = grid.reduce((a, b) => a * b, 1), out = new Float32Array(values.length);
  const source = new Uint32Array(points), strides = grid.map((_, i) => grid.slice(i + 1).reduce((a, b) => a * b, 1));
  for (let i = 0; i < points; i++) {
    let at = 0;
    for (let axis = 0; axis < dim; axis++) {
      const index = Math.floor(i / strides[axis]) % grid[axis];
      at += (mirrored.includes(axis) ? (grid[axis] - index) % grid[axis] : index) * strides[axes[axis]];
    }
    source[i] = at;
  }
  const channels = matrix.length;
  for (let c = 0; c < channels; c++) {
    for (let d = 0; d < channels; d++) {
      if (matrix[c][d]) for (let i = 0; i < points; i++) out[c * points + i] += matrix[c][d] * values[d * points + source[i]];
    }
  }
  return out;
}
