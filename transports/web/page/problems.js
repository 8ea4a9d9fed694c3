// What can go wrong on the way to a call, in words: what happened, and what to do.
//
// Its one rule: every problem has both. Pure.

const PROBLEMS = {
  insecure: [
    "The browser gives this page no microphone, because its address is not secure.",
    "Open it as http://localhost on the machine that serves it, or put HTTPS in front of the server.",
  ],
  old: ["This browser cannot play or record sound in a page.", "Use a current Chrome, Edge, Firefox or Safari."],
  denied: [
    "The microphone is blocked for this page.",
    "Allow it with the icon beside the address, then try again. Or type below.",
  ],
  absent: ["No microphone was found.", "Plug one in and try again. Or type below."],
  busy: [
    "The microphone is there, but does not open.",
    "Another program may be using it, or the system may block it. Close that program, then try again.",
  ],
  unplugged: ["The microphone was unplugged.", "Plug it in again or choose another one, then try again."],
  token: ["The server wants a token.", "Open this page with #token=YOUR-TOKEN at the end of its address."],
  full: ["All lines are taken.", "Try again when another call has ended."],
  leaving: ["The server is shutting down.", "Try again in a moment."],
  gone: ["The server does not answer.", "See whether it still runs and whether you are online, then try again."],
  refused: ["The server ended the call.", "Try again."],
  failed: ["The agent failed, and the call has ended.", "The server's log says why. Try again."],
};

export function problem(name, detail = "") {
  const [what, cure] = PROBLEMS[name] ?? ["Something went wrong.", "Try again."];
  return { name: name in PROBLEMS ? name : "unknown", what, cure, detail };
}

// Of what getUserMedia rejects with (W3C Media Capture and Streams, 10.2).
export function microphoneProblem(error) {
  const names = {
    NotAllowedError: "denied",
    SecurityError: "denied",
    NotFoundError: "absent",
    OverconstrainedError: "absent",
    NotReadableError: "busy",
    AbortError: "busy",
  };
  return problem(names[error?.name] ?? "unknown", error?.message);
}

// Of a page that cannot have sound at all, before anything is asked; null if it can.
export function pageProblem(page) {
  if (!page.isSecureContext) return problem("insecure");
  if (!page.navigator?.mediaDevices?.getUserMedia || !page.AudioWorkletNode) return problem("old");
  return null;
}
