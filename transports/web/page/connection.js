// The websocket to the server: sound as raw 16-bit samples in binary messages, everything else as JSON in text messages.
// What the messages say stands in docs/websocket.md.
//
// Its one rule: after `close` it tells nothing more.
import { hear, HANG_UP, hello, INTERRUPT, muted, played, typed } from "./messages.js";

const GIVE_UP_MS = 10000; // for the server's first message
const FULL = 2 ** 18; // bytes waiting to leave: 8 s of sound; the network is gone, and old sound is of no use

// Close codes (RFC 6455, 7.4.1, and the registry it begins) -> what to tell, and whether it is worth trying again.
const CLOSES = {
  1000: ["over", false],
  1001: ["leaving", true],
  1002: ["refused", false],
  1008: ["refused", false],
  1009: ["refused", false],
  1011: ["failed", false],
  1012: ["leaving", true],
  1013: ["full", false],
};

export class Connection {
  carriesSound = false; // it brings the sound itself, and takes it

  // `on`: {ready(event), sound(buffer), event(event), closed({why, retry, reason})}. `resume`: what the call before told.
  constructor(token, on, resume) {
    this.on = on;
    this.token = token;
    this.open = false;
    const url = new URL("call", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    url.hash = "";
    url.search = token ? new URLSearchParams({ token }) : "";
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.send(hello(resume));
    this.socket.onmessage = ({ data }) => this.take(data);
    this.socket.onclose = ({ code, reason }) => this.closed(code, reason);
    this.timer = setTimeout(() => this.closed(1006), GIVE_UP_MS);
  }

  take(data) {
    if (data instanceof ArrayBuffer) return this.on.sound(data);
    const event = hear(JSON.parse(data));
    if (event?.kind === "ready") {
      clearTimeout(this.timer);
      this.open = true;
      this.on.ready(event);
    } else if (event) this.on.event(event);
  }

  async closed(code, reason = "") {
    const { on } = this;
    if (!on) return;
    this.close();
    const [why, retry] = CLOSES[code] ?? (await refusal(this.token));
    on.closed({ why, retry, reason });
  }

  sound(pcm) {
    if (this.open && this.socket.readyState === WebSocket.OPEN && this.socket.bufferedAmount < FULL) this.socket.send(pcm);
  }

  played(samples) {
    this.send(played(samples));
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

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  close() {
    clearTimeout(this.timer);
    this.open = false;
    this.on = null;
    this.socket.onmessage = this.socket.onclose = this.socket.onopen = null;
    this.socket.close(1000);
  }
}

// Why a socket did not open: the browser does not tell a script, so it is asked for again in a way that does.
export async function refusal(token) {
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const { status } = await fetch("may-call", { headers, cache: "no-store", signal: AbortSignal.timeout(GIVE_UP_MS) });
    if (status === 401 || status === 403) return ["token", false];
    if (status === 429) return ["full", false];
    return status === 503 ? ["leaving", true] : ["gone", true];
  } catch {
    return ["gone", true];
  }
}
