// Where the ear is in the stream: what has left the page, less what the sound device still holds.
//
// Its one rule: it never claims a sample that has not had the time to come out. Pure: times are given, in the audio
// context's own seconds.

const KEPT = 512; // notes: at 50 a second, ten seconds, more than any Bluetooth headset holds back

export class Ear {
  constructor(sampleRate) {
    this.sampleRate = sampleRate;
    this.notes = [];
  }

  // The sample at `position` leaves at `time`. `cleared`: those before it that had not left never will.
  note(time, position, cleared = false) {
    while (cleared && this.notes.length && this.notes.at(-1).time > time) this.notes.pop();
    this.notes.push({ time, position, cleared });
    if (this.notes.length > KEPT) this.notes.shift();
  }

  // All before this position had left at `time`.
  at(time) {
    const next = this.notes.findIndex((note) => note.time > time);
    const before = this.notes.at(next === -1 ? -1 : next - 1);
    if (!before || next === 0) return 0;
    if (next === -1 || this.notes[next].cleared) return before.position;
    // Silence may lie anywhere between the two; as if it came first, nothing is claimed too early.
    const { time: then, position } = this.notes[next];
    return Math.max(before.position, Math.floor(position - (then - time) * this.sampleRate + 1e-6));
  }
}
