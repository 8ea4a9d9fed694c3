// One call from the page's side: microphone, loudspeaker and connection, from the click to the hanging up.
//
// Its one rule: whatever happens, a call that has ended holds no microphone, no sound and no socket.
import { Backoff } from "./backoff.js";
import { Connection } from "./connection.js";
import { PeerLink } from "./peer.js";
import { pageProblem, problem } from "./problems.js";
import { Loudspeaker, Microphone, openContext, RemoteVoice } from "./sound.js";

export class Call {
  // `tell` gets everything there is to show, as {kind, ...}. `say`: typed before the call, said first. `webrtc`: use it.
  constructor({ token, webrtc, microphone, headset, say, tell }) {
    this.token = token;
    this.webrtc = webrtc;
    this.wantsMicrophone = microphone;
    this.headset = headset;
    this.unsaid = say ? [say] : [];
    this.tell = tell;
    this.backoff = new Backoff();
    this.on = true;
    this.state = "idle";
    this.muted = false;
  }

  get hasMicrophone() {
    return Boolean(this.microphone);
  }

  get callerLevel() {
    return this.microphone?.level ?? 0;
  }

  get agentLevel() {
    return this.loudspeaker?.level ?? 0;
  }

  async start() {
    const missing = pageProblem(window);
    if (missing) return this.fail(missing);
    try {
      const opening = openContext();
      opening.catch(() => {}); // it is awaited below; until then nobody looks
      if (this.wantsMicrophone) {
        this.become("asking");
        await this.listen();
      }
      this.context = await opening;
    } catch (error) {
      return this.fail(error.cure ? error : problem("unknown", String(error)));
    }
    if (!this.on) return this.release(); // hung up meanwhile
    this.connect("connecting");
  }

  async listen() {
    this.microphone = await Microphone.open(this.headset, (lost) => this.fail(lost));
    this.mute(this.muted);
  }

  connect(state) {
    this.become(state);
    const on = {
      ready: (rates) => this.ready(rates),
      sound: (pcm) => this.loudspeaker?.play(pcm),
      voice: (stream) => (this.loudspeaker = new RemoteVoice(this.context, stream)),
      event: (event) => this.take(event),
      closed: (how) => this.connection === connection && this.closed(how),
    };
    const connection = this.webrtc ? new PeerLink(this.token, on, this.microphone?.stream) : new Connection(this.token, on, this.resume);
    this.connection = connection;
  }

  ready({ hears, speaks, resume, resumed }) {
    this.backoff.reset();
    if (this.begun && !resumed) this.tell({ kind: "note", text: "The connection was lost. What follows is a new call." });
    this.begun = true;
    this.resume = resume;
    const { connection } = this;
    if (connection.carriesSound) this.microphone?.watch(this.context);
    else {
      this.loudspeaker?.close();
      this.loudspeaker = new Loudspeaker(this.context, speaks, (position) => connection.played(position));
      this.microphone?.capture(this.context, hears, (pcm) => connection.sound(pcm));
    }
    this.agent = "listening";
    this.voice = false;
    this.become("listening");
    if (this.muted) connection.mute(true);
    for (const text of this.unsaid.splice(0)) this.say(text);
  }

  take(event) {
    if (event.kind === "clear") this.loudspeaker?.clear?.();
    else if (event.kind === "spoken") this.loudspeaker?.end?.();
    else if (event.kind === "agent") this.show({ agent: event.state });
    else if (event.kind === "voice") this.show({ voice: event.on });
    else this.tell(event);
  }

  // What the agent does, and while it listens, whether the caller speaks.
  show(change) {
    Object.assign(this, change);
    const state = this.agent === "listening" && this.voice ? "hearing" : this.agent;
    if (state !== this.state) this.become(state);
  }

  closed({ why, retry, reason }) {
    this.quieten();
    if (!this.on) return;
    if (why === "over") return this.finish();
    if (why === "refused" && this.state === "reconnecting" && this.resume) {
      this.resume = undefined; // the call was not kept: begin another
      retry = true;
    }
    const waitMs = retry ? this.backoff.next(Math.random()) : null;
    if (waitMs === null) return this.fail(problem(why, reason));
    this.become("reconnecting");
    this.retry = setTimeout(() => this.connect("reconnecting"), waitMs);
  }

  mute(muted) {
    this.muted = muted;
    if (this.microphone) this.microphone.muted = muted;
    if (this.connection?.open) this.connection.mute(muted);
  }

  interrupt() {
    this.connection?.interrupt();
  }

  say(text) {
    if (this.connection?.open) this.connection.say(text);
    else this.unsaid.push(text);
  }

  stop() {
    this.connection?.hangUp();
    this.finish();
  }

  fail(problem) {
    this.tell({ kind: "problem", problem });
    this.finish();
  }

  finish() {
    if (!this.on) return;
    this.on = false;
    this.release();
    this.become("ended");
  }

  release() {
    clearTimeout(this.retry);
    this.quieten();
    this.connection?.close();
    this.microphone?.close();
    this.microphone = undefined;
    this.context?.close();
    this.context = undefined;
  }

  quieten() {
    this.microphone?.release();
    this.loudspeaker?.close();
    this.loudspeaker = undefined;
  }

  become(state) {
    this.state = state;
    this.tell({ kind: "state", state });
  }
}
