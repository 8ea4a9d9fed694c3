// The same call over WebRTC: sound goes by the browser's own way, and the messages of docs/websocket.md by a data channel.
//
// Its one rule: after `close` it tells nothing more, and holds no connection.
import { refusal } from "./connection.js";
import { hear, HANG_UP, hello, INTERRUPT, muted, played, typed } from "./messages.js";

const GATHER_MS = 2000; // for the addresses of this machine; a late one is of no use to an offer that has left
const CONNECT_MS = 15000;
const REPORT_MS = 100;

export class PeerLink {
  carriesSound = true;

  // `on`: as for Connection, and voice(stream), which is the agent's. `stream`: the microphone's, if there is one.
  constructor(token, on, stream) {
    this.token = token;
    this.on = on;
    this.open = false;
    this.timer = setTimeout(() => this.closed("gone", true), CONNECT_MS);
    this.connection = new RTCPeerConnection();
    this.connection.ontrack = ({ track }) => this.on?.voice(new MediaStream([track]));
    this.connection.onconnectionstatechange = () => {
      if (["failed", "closed"].includes(this.connection.connectionState)) this.closed("gone", true);
    };
    const [track] = stream?.getAudioTracks() ?? [];
    this.connection.addTransceiver(track ?? "audio", { direction: track ? "sendrecv" : "recvonly" });
    this.channel = this.connection.createDataChannel("voiceflow");
    this.channel.onopen = () => this.send(hello());
    this.channel.onmessage = ({ data }) => this.take(JSON.parse(data));
    this.channel.onclose = () => this.closed(this.open ? "over" : "gone", !this.open);
    this.call().catch(() => this.closed("gone", true));
  }

  async call() {
    const { connection } = this;
    await connection.setLocalDescription(await connection.createOffer());
    await gathered(connection);
    const { type, sdp } = connection.localDescription;
    const headers = { "Content-Type": "application/json", ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}) };
    const response = await fetch("offer", { method: "POST", headers, body: JSON.stringify({ type, sdp }) });
    if (!response.ok) return this.closed(...(await refusal(this.token)));
    if (this.on) await connection.setRemoteDescription(await response.json());
  }

  take(message) {
    if (message.type === "rtp") return this.follow(message.timestamp);
    const event = hear(message);
    if (event?.kind === "ready") {
      clearTimeout(this.timer);
      this.open = true;
      this.on?.ready(event);
    } else if (event) this.on?.event(event);
  }

  closed(why, retry) {
    const { on } = this;
    this.close();
    on?.closed({ why, retry });
  }

  // `origin`: the timestamp of the agent's first sample. The browser tells which packet it played last.
  follow(origin) {
    clearInterval(this.reports);
    let told = -1;
    this.reports = setInterval(() => {
      const [source] = this.connection.getReceivers()[0]?.getSynchronizationSources() ?? [];
      const samples = source ? (source.rtpTimestamp - origin) >>> 0 : 0;
      if (samples === told || samples >= 2 ** 31) return;
      told = samples;
      this.send(played(samples));
    }, REPORT_MS);
  }

  played() {} // by its own count, which knows of what the browser's jitter buffer made of the sound: see follow

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
    if (this.channel.readyState === "open") this.channel.send(JSON.stringify(message));
  }

  close() {
    clearTimeout(this.timer);
    clearInterval(this.reports);
    this.open = false;
    this.on = null;
    this.connection.close();
  }
}

function gathered(connection) {
  return new Promise((done) => {
    setTimeout(done, GATHER_MS);
    const look = () => connection.iceGatheringState === "complete" && done();
    connection.addEventListener("icegatheringstatechange", look);
    look();
  });
}
