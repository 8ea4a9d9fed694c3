// The page: what the call tells is shown, what is pressed is told to the call. Every element is named here and only here.
import { Call } from "./call.js";
import { Captions } from "./captions.js";
import { draw as drawGraph } from "./graph.js";
import { meter } from "./levels.js";
import { draw as drawTurns } from "./waterfall.js";

const STATES = {
  idle: "Press Talk, then speak.",
  asking: "Allow the microphone: the browser is asking.",
  connecting: "Connecting…",
  reconnecting: "The connection was lost. Trying again…",
  listening: "Listening. Speak.",
  hearing: "You are speaking.",
  thinking: "Thinking.",
  speaking: "The agent is speaking.",
  ended: "The call has ended.",
};
const LINKS = { connecting: "Connecting", reconnecting: "Reconnecting" };
const TURNS_SHOWN = 8;

const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

let about = {};
let call = null;
let captions = new Captions();
let turns = [];
let showDepths = () => {};
let drawn = ""; // the graph, as it was told

function begin({ microphone = true, say = "" } = {}) {
  captions = new Captions();
  turns = [];
  $("turns").replaceChildren();
  showProblem(null);
  showCaptions();
  call = new Call({ token, webrtc: about.webrtc === true, microphone, headset: $("headset").checked, say, tell });
  globalThis.voiceflow = { call }; // for the console
  call.start();
  showButtons();
}

function tell(event) {
  const act = HANDLERS[event.kind];
  if (act) act(event);
}

const HANDLERS = {
  state: ({ state }) => {
    showState(state);
    if (state === "ended") finish();
  },
  problem: ({ problem }) => showProblem(problem),
  transcript: ({ text, final }) => changeCaptions(() => captions.transcript(text, final)),
  turn: ({ text, continues }) => changeCaptions(() => captions.turn(text, continues)),
  heard: ({ utterance, text }) => changeCaptions(() => captions.heard(utterance, text)),
  stopped: ({ utterance, text, complete }) => changeCaptions(() => captions.stopped(utterance, text, complete)),
  note: ({ text }) => changeCaptions(() => captions.note(text)),
  pipeline: ({ graph }) => {
    const told = JSON.stringify(graph);
    if (told === drawn) return; // the server says it again and again
    drawn = told;
    hideHint("pipeline");
    showDepths = drawGraph($("graph"), graph);
  },
  depths: ({ nodes }) => showDepths(nodes),
  latency: ({ stages, budget }) => {
    hideHint("latency");
    const said = captions.lines.findLast((line) => line.who === "caller")?.text ?? "";
    turns = [{ stages, said }, ...turns].slice(0, TURNS_SHOWN);
    drawTurns($("turns"), turns, budget);
  },
};

function finish() {
  call = null;
  changeCaptions(() => captions.close());
  showButtons();
  showLevels();
  showDepths({});
}

// ------------------------------------------------------------------------------------------------------ showing

function showState(state) {
  document.body.dataset.state = state;
  $("state").textContent = state !== "ended" || $("problem").hidden ? STATES[state] : "";
  const on = !["idle", "ended", "asking", ...Object.keys(LINKS)].includes(state);
  $("link").textContent = on ? "Connected" : (LINKS[state] ?? "Not connected");
  $("link").classList.toggle("on", on);
  showButtons();
}

function showButtons() {
  const on = call !== null;
  $("talk").textContent = on ? "Hang up" : "Talk";
  $("talk").classList.toggle("live", on);
  $("headset").disabled = on;
  $("mute").disabled = !on || !call.hasMicrophone;
  if (!on) showMute(false);
  $("interrupt").disabled = !on || !["speaking", "thinking"].includes(document.body.dataset.state);
}

function showMute(muted) {
  $("mute").setAttribute("aria-pressed", String(muted));
  $("mute").textContent = muted ? "Muted" : "Mute";
}

function showProblem(problem) {
  $("problem").hidden = !problem;
  if (!problem) return;
  $("problem").dataset.name = problem.name;
  $("problem").querySelector(".what").textContent = problem.what;
  $("problem").querySelector(".cure").textContent = problem.cure;
  $("problem").querySelector(".detail").textContent = problem.detail;
  $("state").textContent = "";
}

function changeCaptions(change) {
  const before = captions.announcement;
  change();
  if (captions.announcement !== before) $("announced").textContent = captions.announcement;
  showCaptions();
}

function showCaptions() {
  const list = $("captions");
  const following = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  captions.lines.forEach((line, i) => showLine(list.children[i] ?? list.appendChild(document.createElement("li")), line));
  while (list.children.length > captions.lines.length) list.lastChild.remove();
  if (following) list.scrollTop = list.scrollHeight;
}

function showLine(item, { who, text, partial, cut }) {
  const wanted = `${who}${partial ? " partial" : ""}${cut ? " cut" : ""}`;
  const shown = `${text}${cut ? " …" : ""}`;
  if (item.className === wanted && item.lastChild?.textContent === shown) return;
  item.className = wanted;
  const words = document.createElement("span");
  words.textContent = shown;
  if (who === "note") return item.replaceChildren(words);
  const name = document.createElement("b");
  name.textContent = who === "caller" ? "You" : "Agent";
  item.replaceChildren(name, words);
}

function hideHint(id) {
  $(id).querySelector(".none").hidden = true;
}

function showLevels() {
  showLevel($("caller-level"), call?.callerLevel ?? 0);
  showLevel($("agent-level"), call?.agentLevel ?? 0);
  if (call) requestAnimationFrame(showLevels);
}

function showLevel(bar, amplitude) {
  const share = meter(amplitude);
  bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
  bar.firstElementChild.style.transform = `scaleX(${share})`;
}

// ------------------------------------------------------------------------------------------------------ pressing

$("talk").addEventListener("click", () => {
  if (call) call.stop();
  else {
    begin();
    showLevels();
  }
});

$("problem").querySelector(".retry").addEventListener("click", () => {
  $("talk").focus();
  if (!call) $("talk").click();
});

$("mute").addEventListener("click", () => {
  const muted = $("mute").getAttribute("aria-pressed") !== "true";
  call.mute(muted);
  showMute(muted);
});

$("interrupt").addEventListener("click", () => call.interrupt());

$("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text) return;
  $("text").value = "";
  if (call) call.say(text);
  else {
    begin({ microphone: false, say: text });
    showLevels();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("interrupt").disabled) $("interrupt").click();
});

document.body.dataset.state = "idle";
fetch("page.json")
  .then((response) => response.json())
  .then((said) => {
    about = said;
    $("app").textContent = said.app;
  })
  .catch(() => {}); // a call says what is wrong
