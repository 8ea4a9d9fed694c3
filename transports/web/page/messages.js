// The JSON messages of docs/websocket.md: what the page says, and what it makes of what it hears.
//
// Its one rule: the words of the protocol stand here and nowhere else. Pure. A message that is not known is passed over.

// The rates: what recognisers take, and what most voices make.
export const hello = (resume) => ({ type: "start", version: 1, sample_rate: 16000, wants: 24000, ...(resume ? { resume } : {}) });
export const played = (samples) => ({ type: "played", samples });
export const typed = (text) => ({ type: "text", text });
export const muted = (muted) => ({ type: "mute", muted });
export const INTERRUPT = { type: "interrupt" };
export const PING = { type: "ping" };
export const HANG_UP = { type: "end" };

const HEARD = {
  started: (m) => ({ kind: "ready", hears: m.hears.sample_rate, speaks: m.speaks.sample_rate, resume: m.resume, resumed: m.resumed === true }),
  clear: () => ({ kind: "clear" }),
  state: (m) => ({ kind: "agent", state: m.state }),
  speech_started: () => ({ kind: "voice", on: true }),
  speech_stopped: () => ({ kind: "voice", on: false }),
  transcript: (m) => ({ kind: "transcript", text: m.text, final: m.final }),
  turn_ended: (m) => ({ kind: "turn", text: m.text, continues: m.continues }),
  words_heard: (m) => ({ kind: "heard", utterance: m.utterance, text: m.text }),
  utterance_ended: () => ({ kind: "spoken" }),
  playback_stopped: (m) => ({ kind: "stopped", utterance: m.utterance, text: m.text, complete: m.complete }),
  tool_started: (m) => ({ kind: "note", text: `The agent uses ${m.name}.` }),
  error: (m) => ({ kind: "note", text: `Something failed, and the call goes on: ${m.text}` }),
  pipeline: (m) => ({ kind: "pipeline", graph: m }),
  depths: (m) => ({ kind: "depths", nodes: m.nodes }),
  latency: (m) => ({ kind: "latency", stages: m.stages, budget: m.budget }),
};

// A message as an event for the page; null for what the page has no use for.
export function hear(message) {
  return Object.hasOwn(HEARD, message?.type) ? HEARD[message.type](message) : null;
}
