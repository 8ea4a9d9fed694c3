// Changes the sample rate of one stream that comes in pieces of any length.
//
// Its one rule: in pieces gives what the whole would give. Output is aligned with input; it is late by `heldSeconds`.
// A Kaiser-windowed sinc in polyphase form (Kaiser 1974; Smith, "Digital Audio Resampling"): flat to 85 % of the smaller
// band, and what cannot be carried is 60 dB down, so that a 7 kHz hiss of the room does not fold into speech.

const ZEROS = 16; // zero crossings on each side: more is steeper and later
const ROLLOFF = 0.92; // where the filter has fallen by half, as a share of the smaller band
const BETA = 7; // of the window: about 70 dB

export class Resampler {
  constructor(from, to) {
    if (!(Number.isInteger(from) && Number.isInteger(to) && from > 0 && to > 0)) {
      throw new RangeError(`Resampler: ${from} Hz to ${to} Hz; both must be whole numbers above 0`);
    }
    const common = gcd(from, to);
    this.up = to / common;
    this.down = from / common;
    this.same = from === to;
    const scale = Math.min(1, to / from) * ROLLOFF;
    this.half = this.same ? 0 : Math.ceil(ZEROS / scale);
    this.heldSeconds = this.half / from;
    this.phases = this.same ? [] : filter(this.up, this.half, scale);
    this.history = new Float32Array(this.half); // what came before the first sample: silence
    this.position = 0; // of the next output: whole input samples into `history`, and a phase
    this.phase = 0;
  }

  // The next piece in (Float32Array), as much as is ready out.
  push(piece) {
    if (this.same) return piece;
    const input = new Float32Array(this.history.length + piece.length);
    input.set(this.history);
    input.set(piece, this.history.length);
    const taps = 2 * this.half;
    const output = new Float32Array(Math.max(0, Math.ceil(((input.length - taps - this.position + 1) * this.up) / this.down) + 1));
    let count = 0;
    while (this.position + taps <= input.length) {
      const weights = this.phases[this.phase];
      let sum = 0;
      for (let k = 0; k < taps; k++) sum += input[this.position + k] * weights[k];
      output[count++] = sum;
      this.phase += this.down;
      this.position += Math.floor(this.phase / this.up);
      this.phase %= this.up;
    }
    const spent = Math.min(this.position, input.length);
    this.history = input.slice(spent);
    this.position -= spent;
    return output.subarray(0, count);
  }
}

function gcd(a, b) {
  return b ? gcd(b, a % b) : a;
}

// One set of weights for each place between two input samples; each sums to 1, so that a constant stays one.
function filter(up, half, scale) {
  return Array.from({ length: up }, (_, phase) => {
    const weights = new Float64Array(2 * half);
    for (let k = 0; k < 2 * half; k++) {
      const x = k - half + 1 - phase / up - 1;
      weights[k] = scale * sinc(x * scale) * kaiser(x / half);
    }
    const sum = weights.reduce((a, b) => a + b, 0);
    return Float32Array.from(weights, (w) => w / sum);
  });
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function kaiser(x) {
  return Math.abs(x) >= 1 ? 0 : bessel(BETA * Math.sqrt(1 - x * x)) / bessel(BETA);
}

function bessel(x) {
  let sum = 1;
  for (let term = 1, k = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}
