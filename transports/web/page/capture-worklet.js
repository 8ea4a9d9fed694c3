// The microphone, in the audio thread: mixed to mono, at the rate the call wants, in messages of 20 ms.
//
// Its one rule: what is posted is a copy of its own. The browser uses the buffers of `process` again.
import { Resampler } from "./resample.js";

const MESSAGE_S = 0.02;

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate } }) {
    super();
    this.resampler = new Resampler(sampleRate, rate);
    this.size = Math.round(rate * MESSAGE_S);
    this.message = new Int16Array(this.size);
    this.filled = 0;
    this.on = true;
    this.port.onmessage = () => (this.on = false); // the one message there is: stop
  }

  process([channels]) {
    if (channels.length) for (const sample of this.resampler.push(mono(channels))) this.add(sample);
    return this.on;
  }

  add(sample) {
    this.message[this.filled++] = Math.round(Math.max(-1, Math.min(sample, 32767 / 32768)) * 32768);
    if (this.filled < this.size) return;
    this.port.postMessage(this.message.buffer, [this.message.buffer]);
    this.message = new Int16Array(this.size);
    this.filled = 0;
  }
}

function mono(channels) {
  return channels.length === 1 ? channels[0] : channels[0].map((_, i) => channels.reduce((sum, c) => sum + c[i], 0) / channels.length);
}

registerProcessor("capture", Capture);
