// A call's connection, whichever way it goes: what is said and heard on it are the messages of docs/websocket.md.
//
// Its one rule: after `close` it tells nothing more.
import { hear, HANG_UP, INTERRUPT, muted, typed } from "./messages.js";

const ASK_MS = 10000;

export class Link {
  // `on`: {ready(event), event(event), closed({why, retry, reason})}, and what a subclass brings. `token`: the server's, or "".
  constructor(token, on) {
    this.token = token;
    this.on = on;
    this.open = false; // the server has said that the call is on
  }

  take(message) {
    const event = hear(message);
    if (event?.kind === "ready") {
      clearTimeout(this.timer);
      this.open = true;
      this.on?.ready(event);
    } else if (event) this.on?.event(event);
  }

  mute(on) {
    this.send(muted(on));
  }

  interrupt() {
    this.send(INTERRUPT);
  }

  say(text) {
    this.send(typed(text));
  }

  hangUp() {
    this.send(HANG_UP);
  }

  // It is over, and not because of the page. `why`: the name of a problem, or "over"; `retry`: it is worth trying again.
  end(why, retry, reason = "") {
    const { on } = this;
    this.close();
    on?.closed({ why, retry, reason });
  }

  // Why the server did not take it: the browser does not tell a script, so it is asked in a way in which it does.
  async refused() {
    const { on } = this;
    this.close();
    if (!on) return;
    const [why, retry] = await refusal(this.token);
    on.closed({ why, retry, reason: "" });
  }

  close() {
    clearTimeout(this.timer);
    this.open = false;
    this.on = null;
  }
}

async function refusal(token) {
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const { status } = await fetch("may-call", { headers, cache: "no-store", signal: AbortSignal.timeout(ASK_MS) });
    if (status === 401 || status === 403) return ["token", false];
    if (status === 429) return ["full", false];
    return status === 503 ? ["leaving", true] : ["gone", true];
  } catch {
    return ["gone", true];
  }
}
