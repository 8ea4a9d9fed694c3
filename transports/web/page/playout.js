// The page's playout: a queue between the network and the ear.
//
// Its one rule: sound goes out once, in order, and what was cleared never goes out. It learns as voiceflow/playout does:
// the first sound goes out at once; a gap in mid-speech is filled to a target before going on; the target starts at 80 ms,
// grows by 20 ms with each gap and shrinks by 10 ms after five calm seconds. Counted in samples of the stream: no clock.
//
// Positions count every sample that ever came, cleared ones too; silence made here has no position.

export const OPTIONS = {
  startMs: 80,
  minMs: 40,
  maxMs: 400, // a longer gap is the pause between two things said, not a late network
  growMs: 20,
  shrinkMs: 10,
  calmMs: 5000,
  fadeMs: 8, // in, after a gap
  declickMs: 3, // a cut at full level decays to zero in this time: a constant, no speech
  limitMs: 30000, // of sound waiting: more is a server gone wrong, and the oldest is dropped
};

export class Playout {
  constructor(sampleRate, options = {}) {
    this.sampleRate = sampleRate;
    this.options = { ...OPTIONS, ...options };
    this.targetMs = this.options.startMs;
    this.underruns = 0;
    this.received = 0; // samples that came
    this.played = 0; // position: all before it went out, or was thrown away
    this.queued = 0;
    this.open = false; // more sound of what is being said is to come, as far as is known here
    this.pieces = [];
    this.offset = 0; // into the first piece
    this.gap = null; // samples of silence since the queue ran dry in mid-speech
    this.waited = null; // samples of silence since it began to fill again
    this.calm = 0;
    this.risen = Infinity; // samples of the fade-in that are out
    this.tail = []; // goes out before all else: a decay
    this.last = 0; // the last sample that went out
  }

  // Sound came: Float32Array, -1 to 1.
  push(samples) {
    if (!samples.length) return;
    if (this.gap !== null && this.gap > this.samples(this.options.maxMs)) this.rest();
    if (this.gap !== null && this.waited === null) {
      this.underruns += 1;
      this.calm = 0;
      this.targetMs = Math.min(this.targetMs + this.options.growMs, this.options.maxMs);
      this.waited = 0;
    }
    this.open = true;
    this.pieces.push(samples);
    this.received += samples.length;
    this.queued += samples.length;
    while (this.queued > this.samples(this.options.limitMs) && this.pieces.length > 1) this.drop();
  }

  // All of what is being said has come: what is queued is its end, and the silence behind it no gap.
  end() {
    this.open = false;
    if (!this.queued) this.rest();
  }

  // Throw away what has not gone out. Silent from the next sample on, but for the level it stood at, which decays.
  clear() {
    this.pieces = [];
    this.offset = 0;
    this.queued = 0;
    this.played = this.received;
    this.open = false;
    this.rest();
    this.tail = this.decay();
  }

  // Exactly `count` samples for the ear. Returns how many of them were sound.
  pull(out) {
    let done = 0;
    while (done < out.length && this.tail.length) out[done++] = this.tail.shift();
    if (this.goesOn(out.length - done)) done = this.take(out, done);
    const sound = done;
    out.fill(0, done);
    if (done < out.length && this.open) {
      if (this.gap === null) {
        this.last = done ? out[done - 1] : this.last;
        this.tail = this.decay();
        while (done < out.length && this.tail.length) out[done++] = this.tail.shift();
      }
      if (this.waited === null) this.gap = (this.gap ?? 0) + out.length - sound;
    }
    this.last = out[out.length - 1];
    return sound;
  }

  // Whether anything is to go out, or a gap to be measured.
  get active() {
    return this.queued > 0 || this.tail.length > 0 || (this.open && (this.gap ?? 0) <= this.samples(this.options.maxMs));
  }

  goesOn(wanted) {
    if (this.waited === null) return this.queued > 0;
    const target = this.samples(this.targetMs);
    if (this.open && this.queued < target && this.waited < target) {
      this.waited += wanted;
      return false;
    }
    this.rest();
    this.risen = 0;
    return true;
  }

  take(out, from) {
    let done = from;
    while (done < out.length && this.pieces.length) {
      const piece = this.pieces[0];
      const count = Math.min(piece.length - this.offset, out.length - done);
      out.set(piece.subarray(this.offset, this.offset + count), done);
      done += count;
      this.offset += count;
      if (this.offset === piece.length) {
        this.pieces.shift();
        this.offset = 0;
      }
    }
    const count = done - from;
    this.queued -= count;
    this.played += count;
    const rise = this.samples(this.options.fadeMs);
    for (let i = 0; i < count && this.risen < rise; i++) out[from + i] *= fall(rise, rise - ++this.risen);
    const target = this.samples(this.targetMs);
    // The draining end of what is said tells nothing about how it was fed.
    this.calm = this.open && this.queued < target ? 0 : this.calm + count;
    if (this.calm >= this.samples(this.options.calmMs)) {
      this.calm = 0;
      this.targetMs = Math.max(this.targetMs - this.options.shrinkMs, this.options.minMs);
    }
    return done;
  }

  drop() {
    const lost = this.pieces.shift().length - this.offset;
    this.offset = 0;
    this.queued -= lost;
    this.played += lost;
  }

  rest() {
    this.gap = this.waited = null;
  }

  decay() {
    const count = this.last ? this.samples(this.options.declickMs) : 0;
    return Array.from({ length: count }, (_, i) => this.last * fall(count, i));
  }

  samples(ms) {
    return Math.round((ms * this.sampleRate) / 1000);
  }
}

// The i-th of `count` gains from just under 1 to just over 0 along half a cosine.
function fall(count, i) {
  return 0.5 * (1 + Math.cos((Math.PI * (i + 1)) / (count + 1)));
}
