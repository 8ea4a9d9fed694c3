// The ear, in the audio thread: what sounds, with the number of its first sample on the context's clock; silence is left out.
const SAMPLES = 1024; // in a piece, at most

class Ear extends AudioWorkletProcessor {
  constructor() {
    super();
    this.piece = [];
    this.at = 0;
    this.pieces = [];
    this.posted = 0;
  }

  process([[sound]]) {
    if (sound?.some((sample) => sample)) {
      if (!this.piece.length) this.at = currentFrame;
      for (const sample of sound) this.piece.push(Math.max(-1, Math.min(sample, 1)) * 32767);
      if (this.piece.length >= SAMPLES) this.finish();
    } else this.finish();
    if (currentFrame - this.posted >= SAMPLES) {
      this.posted = currentFrame;
      this.port.postMessage({ end: currentFrame + 128, pieces: this.pieces.splice(0) });
    }
    return true;
  }

  finish() {
    if (this.piece.length) this.pieces.push({ at: this.at, samples: Int16Array.from(this.piece.splice(0)) });
  }
}

registerProcessor("ear", Ear);
