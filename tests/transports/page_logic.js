// What the page's pure modules do. Run in Chromium by test_browser.py; each entry is a test of its own.
import { Backoff } from "/backoff.js";
import { Captions } from "/captions.js";
import { Ear } from "/ear.js";
import { layout } from "/graph.js";
import { loudness, meter } from "/levels.js";
import { hear } from "/messages.js";
import { Playout } from "/playout.js";
import { Resampler } from "/resample.js";
import { bars, scale } from "/waterfall.js";

const RATE = 1000; // one sample a millisecond: the numbers can be read

function equal(got, wanted, what = "") {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${what}: got ${a}, wanted ${b}`);
}

function ok(value, what) {
  if (!value) throw new Error(what);
}

function random(seed) {
  return () => {
    seed = (seed * 1664525 + 1013904223) % 4294967296;
    return seed / 4294967296;
  };
}

const ones = (count, level = 0.5) => new Float32Array(count).fill(level);

function pull(playout, count) {
  const out = new Float32Array(count);
  playout.pull(out);
  return Array.from(out);
}

const sounding = (samples) => samples.filter((s) => s !== 0).length;

function sine(hz, rate, seconds) {
  return Float32Array.from({ length: rate * seconds }, (_, i) => Math.sin((2 * Math.PI * hz * i) / rate));
}

function rms(samples) {
  return Math.sqrt(samples.reduce((sum, s) => sum + s * s, 0) / samples.length);
}

export const tests = {
  "the first sound goes out at once"() {
    const playout = new Playout(RATE);
    equal(pull(playout, 5), [0, 0, 0, 0, 0]);
    playout.push(ones(3));
    equal(pull(playout, 3), [0.5, 0.5, 0.5]);
    equal([playout.played, playout.received, playout.underruns], [3, 3, 0]);
  },

  "a gap in mid-speech is an underrun: 80 ms become 100, and are collected before it goes on"() {
    const playout = new Playout(RATE);
    playout.push(ones(50));
    pull(playout, 100); // 50 of sound, then a gap
    playout.push(ones(60));
    equal([playout.underruns, playout.targetMs], [1, 100]);
    equal(sounding(pull(playout, 10)), 0, "60 of 100 are there");
    playout.push(ones(60));
    const out = pull(playout, 20);
    ok(out[0] > 0 && out[0] < 0.1 && out[19] === 0.5, `it fades in: ${out}`);
    equal(playout.played, 70);
  },

  "after an underrun it waits no longer than the target"() {
    const playout = new Playout(RATE);
    playout.push(ones(10));
    pull(playout, 20);
    playout.push(ones(5));
    let waited = 0;
    while (!sounding(pull(playout, 1))) waited++;
    ok(waited >= 99 && waited <= 101, `it waited ${waited} ms`);
  },

  "the end of what is said is no underrun"() {
    const playout = new Playout(RATE);
    playout.push(ones(50));
    playout.end();
    pull(playout, 300);
    equal(playout.active, false);
    playout.push(ones(10));
    equal(sounding(pull(playout, 10)), 10, "the next utterance starts at once");
    equal([playout.underruns, playout.targetMs], [0, 80]);
  },

  "a gap longer than any buffer could bridge is a pause"() {
    const playout = new Playout(RATE);
    playout.push(ones(50));
    for (let i = 0; i < 60; i++) pull(playout, 10);
    equal(playout.active, false);
    playout.push(ones(10));
    equal(sounding(pull(playout, 10)), 10);
    equal([playout.underruns, playout.targetMs], [0, 80]);
  },

  "five calm seconds take 10 ms off the target, down to its bound"() {
    const playout = new Playout(RATE);
    const targets = new Set();
    for (let second = 0; second < 60; second++) {
      playout.push(ones(1000));
      if (second) pull(playout, 1000);
      targets.add(playout.targetMs);
    }
    equal([...targets], [80, 70, 60, 50, 40]);
  },

  "a queue below the target is not calm"() {
    const playout = new Playout(RATE);
    for (let i = 0; i < 2000; i++) {
      playout.push(ones(20));
      pull(playout, 20);
    }
    equal(playout.targetMs, 80);
  },

  "the target does not grow over its bound"() {
    const playout = new Playout(RATE);
    for (let i = 0; i < 40; i++) {
      playout.push(ones(500));
      pull(playout, 500 + 500);
      pull(playout, 50);
      playout.push(ones(1));
      pull(playout, 450);
    }
    ok(playout.targetMs <= 400, `${playout.targetMs}`);
  },

  "after a clear nothing that was queued goes out: the level it stood at decays in 3 ms"() {
    const playout = new Playout(RATE);
    playout.push(ones(1000));
    pull(playout, 10);
    playout.clear();
    const out = pull(playout, 100);
    ok(out[0] < 0.5 && out[1] < out[0] && out[2] < out[1], `${out.slice(0, 4)}`);
    equal(sounding(out), 3);
    equal([playout.played, playout.queued, playout.active], [1000, 0, false], "what was cleared counts as passed");
  },

  "a clear of silence is silent, and the next sound goes out at once"() {
    const playout = new Playout(RATE);
    playout.clear();
    equal(sounding(pull(playout, 10)), 0);
    playout.push(ones(4));
    playout.clear();
    playout.push(ones(4, 0.25));
    equal(pull(playout, 4), [0.25, 0.25, 0.25, 0.25]);
    equal(playout.played, 8);
  },

  "whatever comes when, each sample goes out once and in order, and none after its clear"() {
    for (let seed = 1; seed <= 200; seed++) {
      const chance = random(seed);
      const playout = new Playout(RATE, { fadeMs: 0, declickMs: 0 });
      let [next, first, last] = [1, 1, 0];
      for (let step = 0; step < 200; step++) {
        const what = chance();
        if (what < 0.4) {
          const count = 1 + Math.floor(chance() * 60);
          playout.push(Float32Array.from({ length: count }, () => next++ / 65536));
        } else if (what < 0.9) {
          const count = Math.floor(chance() * 60);
          const out = new Float32Array(count);
          const sound = playout.pull(out);
          const heard = Array.from(out, (s) => Math.round(s * 65536)).filter(Boolean);
          equal(heard.length, sound);
          for (const sample of heard) {
            equal(sample, Math.max(last + 1, first), `seed ${seed}`);
            last = sample;
          }
          equal(playout.played, Math.max(last, first - 1), `seed ${seed}: the position`);
        } else if (what < 0.95) {
          playout.clear();
          first = next;
        } else playout.end();
        equal(playout.queued, playout.received - playout.played, `seed ${seed}`);
      }
    }
  },

  "a server that sends for ever does not fill the memory"() {
    const playout = new Playout(RATE);
    for (let i = 0; i < 100; i++) playout.push(ones(1000));
    equal([playout.queued, playout.received], [30000, 100000]);
    equal(playout.played, 70000);
  },

  "a resampler in pieces gives what it gives whole"() {
    const chance = random(7);
    for (const [from, to] of [[48000, 16000], [44100, 16000], [24000, 48000], [24000, 44100], [16000, 24000]]) {
      const sound = Float32Array.from({ length: 5000 }, () => chance() - 0.5);
      const whole = new Resampler(from, to).push(sound);
      const pieces = new Resampler(from, to);
      const joined = [];
      for (let at = 0; at < sound.length; ) {
        const count = Math.floor(chance() * 300);
        joined.push(...pieces.push(sound.subarray(at, at + count)));
        at += count;
      }
      equal(joined.length, whole.length);
      ok(joined.every((s, i) => s === whole[i]), `${from} to ${to} differs`);
      ok(Math.abs(whole.length - (sound.length * to) / from) <= new Resampler(from, to).heldSeconds * to + 1, `${whole.length}`);
    }
  },

  "a resampler keeps speech as it is, and lets nothing fold back into it"() {
    for (const [from, to] of [[48000, 16000], [44100, 16000], [24000, 48000], [24000, 44100]]) {
      const out = new Resampler(from, to).push(sine(1000, from, 0.5));
      const inner = out.subarray(to / 20, to / 3);
      const wanted = sine(1000, to, 1).subarray(to / 20, to / 3);
      ok(inner.every((s, i) => Math.abs(s - wanted[i]) < 0.002), `${from} to ${to}: 1 kHz changed or moved`);
    }
    for (const hz of [9300, 12000, 15000, 20000]) {
      const out = new Resampler(48000, 16000).push(sine(hz, 48000, 0.5)).subarray(800, 7000);
      ok(rms(out) < 0.001, `${hz} Hz came through at ${rms(out)}`);
    }
  },

  "equal rates give back the very samples"() {
    const sound = ones(10);
    ok(new Resampler(16000, 16000).push(sound) === sound, "a copy");
  },

  "a rate that makes no sense is refused"() {
    for (const rate of [0, -1, 1.5, NaN, undefined]) {
      let said = "";
      try {
        new Resampler(rate, 16000);
      } catch (error) {
        said = error.message;
      }
      ok(said.includes("whole numbers above 0"), said);
    }
  },

  "the ear is where the sound that has had the time to come out ends"() {
    const ear = new Ear(RATE);
    equal(ear.at(5), 0, "before anything");
    ear.note(10.0, 0);
    ear.note(10.02, 20);
    ear.note(10.04, 40);
    equal([9, 10, 10.01, 10.02, 10.03, 11].map((t) => ear.at(t)), [0, 0, 10, 20, 30, 40]);
  },

  "the ear does not count silence between two notes as sound"() {
    const ear = new Ear(RATE);
    ear.note(1.0, 0);
    ear.note(1.1, 20); // 80 ms of silence lie in it, nobody knows where
    equal([1.05, 1.08, 1.09, 1.1].map((t) => ear.at(t)), [0, 0, 10, 20]);
  },

  "what was cleared is not claimed before the clear, and passed after it"() {
    const ear = new Ear(RATE);
    ear.note(1.0, 100);
    ear.note(1.06, 160); // was to leave at 1.06, and never did
    ear.note(1.05, 500, true);
    equal([1.0, 1.03, 1.049, 1.05].map((t) => ear.at(t)), [100, 100, 100, 500]);
  },

  "the meter is 0 at silence, half at -30 dB and 1 at full scale"() {
    equal([0, 0.0001, 1, 2].map(meter), [0, 0, 1, 1]);
    ok(Math.abs(meter(10 ** (-30 / 20)) - 0.5) < 1e-9, `${meter(10 ** (-30 / 20))}`);
    equal(meter(NaN), 0);
    equal(loudness(new Int16Array(0)), 0);
    equal(loudness(Int16Array.from([16384, -16384])), 0.5);
  },

  "each wait is twice the one before, up to a limit, and it gives up in the end"() {
    const backoff = new Backoff({ firstMs: 500, limitMs: 4000, tries: 6 });
    equal(Array.from({ length: 7 }, () => backoff.next(1)), [500, 1000, 2000, 4000, 4000, 4000, null]);
    backoff.reset();
    equal(backoff.next(0), 375);
  },

  "partials become the caller's words, the agent's words come as they are heard"() {
    const captions = new Captions();
    captions.transcript("what is");
    captions.transcript("what is the capital");
    captions.turn("What is the capital?");
    captions.heard(1, "It");
    captions.heard(1, "is Canberra.");
    captions.stopped(1, "It is Canberra.", true);
    equal(captions.lines.map((l) => [l.who, l.text, l.partial, l.cut]), [
      ["caller", "What is the capital?", false, false],
      ["agent", "It is Canberra.", false, false],
    ]);
    equal(captions.announcement, "Agent: It is Canberra.");
  },

  "a final transcript stays, and the next stands behind it"() {
    const captions = new Captions();
    captions.transcript("I would");
    captions.transcript("I would like", true);
    captions.transcript("a");
    captions.transcript("a table");
    equal(captions.lines.map((l) => [l.text, l.partial]), [["I would like a table", true]]);
  },

  "every message of the protocol that the page shows is understood, and no other harms"() {
    const started = { type: "started", hears: { sample_rate: 16000 }, speaks: { sample_rate: 24000 }, resume: "r", resumed: true };
    equal(hear(started), { kind: "ready", hears: 16000, speaks: 24000, resume: "r", resumed: true });
    equal(hear({ type: "state", state: "thinking" }), { kind: "agent", state: "thinking" });
    for (const other of [null, 3, "x", [], {}, { type: "toString" }, { type: "__proto__" }, { type: "unheard-of" }, { type: 7 }]) {
      equal(hear(other), null);
    }
  },

  "a reply that was cut says so; one of which nothing was heard leaves no line"() {
    const captions = new Captions();
    captions.heard(1, "We are open");
    captions.transcript("a table");
    captions.stopped(1, "We are", false);
    captions.stopped(2, "", false);
    captions.heard(3, "x");
    captions.stopped(3, "", false);
    equal(captions.lines.map((l) => [l.who, l.text, l.cut]), [["agent", "We are", true], ["caller", "a table", false]]);
  },

  "a turn that is taken up again stands in the place of its first part"() {
    const captions = new Captions();
    captions.turn("I would like");
    captions.transcript("a table");
    captions.turn("I would like a table", true);
    captions.transcript("hm");
    captions.turn("");
    equal(captions.lines.map((l) => l.text), ["I would like a table"]);
  },

  "a long call does not fill the memory"() {
    const captions = new Captions();
    for (let i = 0; i < 1000; i++) captions.turn(`${i}`);
    equal([captions.lines.length, captions.lines.at(-1).text], [200, "999"]);
  },

  "each node is drawn below all that feed it, and no two boxes touch"() {
    const nodes = ["mic", "vad", "stt", "end", "turns", "sink"].map((name) => ({ name }));
    const arrows = [["mic", "vad"], ["vad", "stt"], ["vad", "end"], ["stt", "turns"], ["end", "turns"], ["vad", "turns"], ["turns", "sink"]]
      .map(([source, target]) => ({ source, target, report: false }));
    arrows.push({ source: "sink", target: "turns", report: true });
    const { boxes, arrows: drawn, width, height } = layout({ nodes, arrows });
    const at = Object.fromEntries(boxes.map((box) => [box.name, box]));
    for (const { source, target, report } of drawn) ok(report || at[source].y + at[source].height < at[target].y, `${source} > ${target}`);
    for (const a of boxes) {
      ok(a.x >= 0 && a.x + a.width <= width && a.y >= 0 && a.y + a.height <= height, `${a.name} is outside`);
      for (const b of boxes) ok(a === b || a.y !== b.y || Math.abs(a.x - b.x) > a.width, `${a.name} lies on ${b.name}`);
    }
    ok(drawn.every((arrow) => !arrow.d.includes("NaN")), "an arrow leads nowhere");
  },

  "a loop that is no report is drawn too"() {
    const nodes = [{ name: "a" }, { name: "b" }];
    const { boxes } = layout({ nodes, arrows: [{ source: "a", target: "b" }, { source: "b", target: "a" }] });
    ok(boxes.every((box) => Number.isFinite(box.y)), JSON.stringify(boxes));
  },

  "the stages of a turn stand one behind the other and add up"() {
    const { bars: placed, total } = bars({ stt: 100, llm: 200, tts: 50, playout: 25 });
    equal(placed.map(({ from, ms }) => [from, ms]), [[0, 100], [100, 200], [300, 50], [350, 25]]);
    equal(total, 375);
    equal(scale([{ stages: { stt: 100 } }], { total: 500 }), 1000);
    equal(scale([{ stages: { stt: 100 } }, { stages: { llm: 3000 } }], { total: 500 }), 3000);
  },
};
