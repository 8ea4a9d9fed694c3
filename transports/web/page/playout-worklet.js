// The loudspeaker, in the audio thread: pulls the playout, brings it to the context's rate, and says where it is.
//
// Its one rule: a position is reported with the context's time at which its sample leaves, so that the page can tell what
// the ear has had. Messages in: a buffer of 16-bit sound, "end", "clear", "stop".
import { Playout } from "./playout.js";
import { Resampler } from "./resample.js";

const REPORT_S = 0.02;

class PlayoutNode extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate } }) {
    super();
    this.playout = new Playout(rate);
    this.resampler = new Resampler(rate, sampleRate);
    this.block = new Float32Array(Math.max(1, Math.round((128 * rate) / sampleRate))); // about one quantum's worth
    this.ready = []; // at the context's rate
    this.at = 0; // into the first of them
    this.waiting = 0; // samples in `ready`
    this.reportAt = 0;
    this.peak = 0;
    this.was = false;
    this.on = true;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  take(data) {
    if (data instanceof ArrayBuffer) this.playout.push(Float32Array.from(new Int16Array(data), (s) => s / 32768));
    else if (data === "end") this.playout.end();
    else if (data === "stop") this.on = false;
    else {
      this.playout.clear();
      this.report(true);
    }
  }

  process(_, [channels]) {
    const out = channels[0];
    const active = this.playout.active;
    while (this.waiting < out.length) {
      this.playout.pull(this.block);
      const piece = this.resampler.push(this.block).slice();
      this.ready.push(piece);
      this.waiting += piece.length;
    }
    for (let i = 0; i < out.length; i++) {
      while (this.at === this.ready[0].length) {
        this.ready.shift();
        this.at = 0;
      }
      out[i] = this.ready[0][this.at++];
      this.peak = Math.max(this.peak, Math.abs(out[i]));
    }
    this.waiting -= out.length;
    for (const other of channels.slice(1)) other.set(out);
    if (currentTime >= this.reportAt || active !== this.was) this.report(false);
    this.was = active;
    return this.on;
  }

  report(cleared) {
    const { playout } = this;
    this.reportAt = currentTime + REPORT_S;
    this.port.postMessage({
      cleared,
      time: currentTime + (128 + this.waiting) / sampleRate + this.resampler.heldSeconds, // when the sample at `position` leaves
      position: playout.played,
      peak: this.peak,
    });
    this.peak = 0;
  }
}

registerProcessor("playout", PlayoutNode);
