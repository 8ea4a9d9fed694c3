// The page's sound: microphone in, loudspeaker out, each through a worklet in the audio thread.
//
// Its one rule: when `close` has returned the microphone is off.
import { Ear } from "./ear.js";
import { loudness } from "./levels.js";
import { microphoneProblem, problem } from "./problems.js";

// Both need an AudioContext of the page's, made in the click that begins the call: browsers start none without one.
export async function openContext() {
  const context = new AudioContext({ latencyHint: "interactive" });
  await Promise.all([
    context.resume(),
    ...["capture", "playout"].map((name) => context.audioWorklet.addModule(new URL(`${name}-worklet.js`, import.meta.url))),
  ]);
  return context;
}

export class Microphone {
  // `headset`: there is no echo to cancel; a canceller also takes from the caller's voice while the agent speaks, so that
  // it is harder to interrupt. `lost`: called when it is unplugged. Rejects with a problem.
  static async open(headset, lost) {
    let stream;
    try {
      const audio = { echoCancellation: !headset, noiseSuppression: true, autoGainControl: true };
      stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      throw microphoneProblem(error);
    }
    return new Microphone(stream, lost);
  }

  constructor(stream, lost) {
    this.stream = stream;
    this.captured = 0; // the level of what was captured last
    this.meter = null;
    const [track] = stream.getAudioTracks();
    track.onended = () => lost(problem("unplugged"));
  }

  get level() {
    return this.meter?.level ?? this.captured;
  }

  // From now on `send` gets 20 ms of 16-bit sound at `rate` at a time, as an ArrayBuffer.
  capture(context, rate, send) {
    this.release();
    this.source = context.createMediaStreamSource(this.stream);
    this.node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, processorOptions: { rate } });
    this.node.port.onmessage = ({ data }) => {
      this.captured = loudness(new Int16Array(data));
      send(data);
    };
    this.source.connect(this.node);
  }

  // Somebody else takes the sound; here only its level is looked at.
  watch(context) {
    this.release();
    this.meter = new StreamMeter(context, this.stream);
  }

  // The microphone goes on, but gives silence: the agent's clock is the caller's sound.
  set muted(muted) {
    for (const track of this.stream.getAudioTracks()) track.enabled = !muted;
  }

  release() {
    this.source?.disconnect();
    this.node?.port.postMessage("stop");
    if (this.node) this.node.port.onmessage = null;
    this.meter?.close();
    this.source = this.node = this.meter = undefined;
    this.captured = 0;
  }

  close() {
    this.release();
    for (const track of this.stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }
}

export class Loudspeaker {
  // `moved`: called with the ear's position whenever it has come further. Samples count in the stream, cleared ones too.
  constructor(context, rate, moved) {
    this.context = context;
    this.moved = moved;
    this.ear = new Ear(rate);
    this.level = 0;
    this.reported = 0;
    this.node = new AudioWorkletNode(context, "playout", { numberOfInputs: 0, outputChannelCount: [1], processorOptions: { rate } });
    this.node.port.onmessage = ({ data }) => this.note(data);
    this.node.connect(context.destination);
  }

  play(pcm) {
    this.node.port.postMessage(pcm, [pcm]);
  }

  // All of what is being said has come.
  end() {
    this.node.port.postMessage("end");
  }

  clear() {
    this.node.port.postMessage("clear");
  }

  note({ time, position, cleared, peak }) {
    this.ear.note(time, position, cleared);
    this.level = peak;
    const heard = this.position();
    if (heard > this.reported) this.moved((this.reported = heard));
  }

  // What has come out of the device by now: the context's time, less what lies between it and the ear.
  position() {
    const { currentTime, baseLatency, outputLatency } = this.context;
    return this.ear.at(currentTime - (outputLatency || baseLatency || 0));
  }

  close() {
    this.node.port.onmessage = null;
    this.node.port.postMessage("stop");
    this.node.disconnect();
    this.level = 0;
  }
}

// The agent's voice as a stream of the browser's own, which plays it through its own jitter buffer.
export class RemoteVoice {
  constructor(context, stream) {
    this.audio = new Audio();
    this.audio.srcObject = stream;
    this.audio.play().catch(() => {}); // closed before it began
    this.meter = new StreamMeter(context, stream);
  }

  get level() {
    return this.meter.level;
  }

  close() {
    this.meter.close();
    this.audio.srcObject = null;
  }
}

class StreamMeter {
  constructor(context, stream) {
    this.source = context.createMediaStreamSource(stream);
    this.analyser = new AnalyserNode(context, { fftSize: 1024 });
    this.samples = new Float32Array(1024);
    this.source.connect(this.analyser);
  }

  get level() {
    this.analyser.getFloatTimeDomainData(this.samples);
    return Math.sqrt(this.samples.reduce((sum, s) => sum + s * s, 0) / this.samples.length);
  }

  close() {
    this.source.disconnect();
  }
}
