// The same call over WebRTC: sound goes by the browser's own way, and the messages by a data channel.
//
// Its one rule: after `close` it holds no connection.
import { Link } from "./link.js";
import { hello, played } from "./messages.js";

const GATHER_MS = 2000; // for the addresses of this machine; a late one is of no use to an offer that has left
const CONNECT_MS = 20000; // by then the server has given it up too (15 s), and its line is free for another try
const LOST_MS = 3000; // beyond the 5 to 7.5 s in which the browser has had no answer: by then the server has given the call up
const REPORT_MS = 100;

export class PeerLink extends Link {
  carriesSound = true;

  // `on`: as for Link, and voice(stream), which is the agent's. `stream`: the microphone's, if there is one.
  constructor(token, on, stream) {
    super(token, on);
    this.timer = setTimeout(() => this.end("gone", true), CONNECT_MS);
    this.connection = new RTCPeerConnection();
    this.connection.ontrack = ({ track }) => this.on?.voice(new MediaStream([track]));
    this.connection.onconnectionstatechange = () => this.became(this.connection.connectionState);
    const [track] = stream?.getAudioTracks() ?? [];
    this.connection.addTransceiver(track ?? "audio", { direction: track ? "sendrecv" : "recvonly" });
    this.channel = this.connection.createDataChannel("voiceflow");
    this.channel.onopen = () => this.send(hello());
    this.channel.onmessage = ({ data }) => this.come(JSON.parse(data));
    this.channel.onclose = () => this.end(this.open ? "over" : "gone", !this.open);
    this.call().catch(() => this.end("gone", true));
  }

  async call() {
    const { connection } = this;
    await connection.setLocalDescription(await connection.createOffer());
    await gathered(connection);
    const { type, sdp } = connection.localDescription;
    const headers = { "Content-Type": "application/json", ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}) };
    const response = await fetch("offer", { method: "POST", headers, body: JSON.stringify({ type, sdp }) });
    if (!response.ok) return this.refused();
    if (this.on) await connection.setRemoteDescription(await response.json());
  }

  became(state) {
    clearTimeout(this.waiting);
    if (state === "disconnected") this.waiting = setTimeout(() => this.end("gone", true), LOST_MS);
    else if (["failed", "closed"].includes(state)) this.end("gone", true);
  }

  come(message) {
    if (message.type === "rtp") this.follow(message.timestamp);
    else this.take(message);
  }

  // `origin`: the timestamp of the agent's first sample. The browser tells which packet it played last: so the count knows
  // what its jitter buffer made of the sound.
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

  send(message) {
    if (this.channel.readyState === "open") this.channel.send(JSON.stringify(message));
  }

  close() {
    super.close();
    clearTimeout(this.waiting);
    clearInterval(this.reports);
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
