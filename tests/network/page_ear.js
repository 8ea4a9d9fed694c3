// Run in the page before its own scripts: a mouth in place of the microphone, an ear on the page's output, and notes of what it is told.
// The page's own code is as it is: it captures what the mouth gives, and plays into the sound device, beside which the ear sits.
{
  const trial = { told: [], pieces: [], rate: 0, offset: -Infinity };
  globalThis.trial = trial;
  const note = (type, more) => trial.told.push({ type, at: performance.now() / 1000, ...more });

  // ------------------------------------------------------------------------------------------------ the ear
  let context = null;
  const Context = globalThis.AudioContext;
  globalThis.AudioContext = class extends Context {
    constructor(options) {
      super(options);
      context = this;
      trial.rate = this.sampleRate;
      trial.ear = new GainNode(this);
      this.audioWorklet.addModule("/page_ear_worklet.js").then(() => {
        const node = new AudioWorkletNode(this, "ear", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
        node.port.onmessage = ({ data: { end, pieces } }) => {
          // A message comes a little after its sound: the earliest ever tells how the two clocks stand.
          trial.offset = Math.max(trial.offset, end / trial.rate - performance.now() / 1000);
          trial.pieces.push(...pieces);
        };
        trial.ear.connect(node);
      });
    }
  };
  const { connect } = AudioNode.prototype;
  AudioNode.prototype.connect = function (target, ...rest) {
    const remote = this instanceof MediaStreamAudioSourceNode && this.mediaStream !== trial.microphone;
    if (target instanceof AudioDestinationNode || remote) connect.call(this, trial.ear);
    return connect.call(this, target, ...rest);
  };

  // ---------------------------------------------------------------------------------------------- the mouth
  navigator.mediaDevices.getUserMedia = async () => {
    trial.mouth = new GainNode(context, { gain: 0 });
    const voice = new OscillatorNode(context, { frequency: 800 });
    const out = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
    connect.call(voice, trial.mouth);
    connect.call(trial.mouth, out);
    voice.start();
    trial.microphone = out.stream;
    return out.stream;
  };
  // Gives when the last sample left, on the context's clock.
  trial.say = (seconds) => {
    const at = context.currentTime + 0.02;
    trial.mouth.gain.setValueAtTime(0.5, at);
    trial.mouth.gain.setValueAtTime(0, at + seconds);
    return at + seconds;
  };

  // ------------------------------------------------------------------------------------------ what it is told
  const listen = (source) =>
    source.addEventListener("message", ({ data }) => {
      if (typeof data !== "string") return;
      const { type, utterance, complete } = JSON.parse(data);
      note(type, { utterance, complete });
    });
  const Socket = globalThis.WebSocket;
  globalThis.WebSocket = class extends Socket {
    constructor(...parameters) {
      super(...parameters);
      listen(this);
    }
  };
  const { createDataChannel } = RTCPeerConnection.prototype;
  RTCPeerConnection.prototype.createDataChannel = function (...parameters) {
    const channel = createDataChannel.apply(this, parameters);
    listen(channel);
    return channel;
  };
  document.addEventListener("DOMContentLoaded", () => {
    const look = () => note("page", { state: document.body.dataset.state });
    new MutationObserver(look).observe(document.body, { attributeFilter: ["data-state"] });
  });

  // All since it was asked last. `clock`: what to add to the context's seconds for those of the epoch.
  trial.take = () => {
    const [told, pieces] = [trial.told.splice(0), trial.pieces.splice(0)];
    const text = (samples) => btoa(String.fromCharCode(...new Uint8Array(samples.buffer)));
    return {
      rate: trial.rate,
      epoch: performance.timeOrigin / 1000,
      clock: performance.timeOrigin / 1000 - trial.offset,
      told,
      pieces: pieces.map(({ at, samples }) => [at, text(samples)]),
    };
  };
}
