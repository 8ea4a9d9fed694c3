// The conversation as the page shows it: who said what, as far as it is known.
//
// Its one rule: the agent's words stand here when they were heard, and not before. Pure: events in, lines out.

const KEPT = 200; // lines

export class Captions {
  constructor() {
    this.lines = []; // {who: "caller" | "agent" | "note", text, partial, cut, utterance}
    this.announcement = ""; // the last thing said to its end, for a screen reader
  }

  // What the caller seems to be saying. A final stays, and what comes next stands behind it.
  transcript(text, final = false) {
    const line = this.open("caller") ?? this.add({ who: "caller", partial: true, settled: "" });
    line.text = [line.settled, text].filter(Boolean).join(" ");
    if (final) line.settled = line.text;
  }

  // The caller's turn is over. `continues`: the one before was taken up again, and this is all of it.
  turn(text, continues = false) {
    const open = this.open("caller");
    if (open && (continues || !text)) this.lines.splice(this.lines.indexOf(open), 1);
    if (!text) return;
    const before = continues ? this.lines.findLast((line) => line.who === "caller") : open;
    const line = before ?? this.add({ who: "caller" });
    Object.assign(line, { text, partial: false });
    this.announcement = `You: ${text}`;
  }

  // These words of the agent have reached the ear.
  heard(utterance, words) {
    const line = this.open("agent", utterance) ?? this.add({ who: "agent", partial: true, utterance });
    line.text = [line.text, words].filter(Boolean).join(" ");
  }

  // Nothing more of this will be heard. `text`: all that was.
  stopped(utterance, text, complete) {
    const open = this.open("agent", utterance);
    if (!text) {
      if (open) this.lines.splice(this.lines.indexOf(open), 1);
      return;
    }
    const line = open ?? this.add({ who: "agent", utterance });
    Object.assign(line, { text, partial: false, cut: !complete });
    this.announcement = `Agent: ${text}`;
  }

  // Something that nobody said.
  note(text) {
    this.add({ who: "note", text });
  }

  // The call is over: nothing is still being said.
  close() {
    for (const line of this.lines) if (line.partial) Object.assign(line, { partial: false, cut: true });
  }

  open(who, utterance) {
    return this.lines.findLast((line) => line.who === who && line.partial && line.utterance === utterance);
  }

  add(line) {
    this.lines.push({ text: "", partial: false, cut: false, ...line });
    if (this.lines.length > KEPT) this.lines.shift();
    return this.lines.at(-1);
  }
}
