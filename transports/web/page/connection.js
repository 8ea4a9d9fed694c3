// The websocket to the server: sound as raw 16-bit samples in binary messages, everything else as JSON in text messages.
//
// Its one rule: a server that says nothing is not waited for.
import { Link } from "./link.js";
import { hello, PING, played } from "./messages.js";

const GIVE_UP_MS = 10000; // for the server's first message
const TICK_MS = 2000;
const QUIET_TICKS = 3; // without a message, the answers to two pings included: it is gone, though nobody closed the socket
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

export class Connection extends Link {
  carriesSound = false; // it brings the sound itself, and takes it

  // `on`: as for Link, and sound(buffer). `resume`: what the call before told.
  constructor(token, on, resume) {
    super(token, on);
    this.quiet = 0; // ticks since the last message
    const url = new URL("call", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    url.hash = "";
    url.search = token ? new URLSearchParams({ token }) : "";
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.send(hello(resume));
    this.socket.onmessage = ({ data }) => this.come(data);
    this.socket.onclose = ({ code, reason }) => this.closed(code, reason);
    this.timer = setTimeout(() => this.refused(), GIVE_UP_MS);
    this.ticks = setInterval(() => this.tick(), TICK_MS);
  }

  come(data) {
    this.quiet = 0;
    if (data instanceof ArrayBuffer) this.on.sound(data);
    else this.take(JSON.parse(data));
  }

  // Counted, not timed: in a page that was frozen, what came meanwhile is taken before the next tick but one.
  tick() {
    if (!this.open) return;
    if (++this.quiet > QUIET_TICKS) this.end("gone", true);
    else if (this.quiet > 1) this.send(PING);
  }

  closed(code, reason) {
    if (CLOSES[code]) this.end(...CLOSES[code], reason);
    else if (this.open) this.end("gone", true);
    else this.refused();
  }

  sound(pcm) {
    if (this.open && this.socket.readyState === WebSocket.OPEN && this.socket.bufferedAmount < FULL) this.socket.send(pcm);
  }

  played(samples) {
    this.send(played(samples));
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  close() {
    super.close();
    clearInterval(this.ticks);
    this.socket.onmessage = this.socket.onclose = this.socket.onopen = null;
    this.socket.close(1000);
  }
}
