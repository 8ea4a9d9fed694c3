// One answer's wait, stage by stage, against the budget.
//
// Its one rule: the stages are drawn to one scale for all turns, and their sum is what the caller waited.

export const STAGES = ["stt", "llm", "tts", "playout"];
const NAMES = { stt: "STT", llm: "LLM", tts: "TTS", playout: "Playout" };
const SVG = "http://www.w3.org/2000/svg";

// {stages: {stt, ...} in ms} -> bars in ms from the left, and the sum.
export function bars(stages) {
  let at = 0;
  const placed = STAGES.map((name) => {
    const bar = { name, from: at, ms: Math.max(0, stages[name] ?? 0) };
    at += bar.ms;
    return bar;
  });
  return { bars: placed, total: at };
}

// The scale for all turns that are shown: twice the budget, or up to the slowest.
export function scale(turns, budget) {
  return Math.max(2 * budget.total, ...turns.map((turn) => bars(turn.stages).total));
}

// Draws the turns into a list, newest first.
export function draw(list, turns, budget) {
  const most = scale(turns, budget);
  list.replaceChildren(...turns.map((turn) => row(turn, budget, most)));
}

function row(turn, budget, most) {
  const { bars: placed, total } = bars(turn.stages);
  const item = document.createElement("li");
  const sum = element("div", "sum");
  const time = element("span", "total", `${Math.round(total)} ms`);
  if (total > budget.total) time.classList.add("over");
  sum.append(element("span", "said", turn.said), time);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${most} 10`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${Math.round(total)} of ${budget.total} milliseconds`);
  svg.append(rectangle("ground", 0, most));
  for (const { name, from, ms } of placed) svg.append(rectangle(name, from, ms));
  const line = document.createElementNS(SVG, "line");
  for (const [key, value] of Object.entries({ x1: budget.total, x2: budget.total, y1: 0, y2: 10 })) line.setAttribute(key, value);
  svg.append(line);
  const stages = element("div", "stages");
  for (const { name, ms } of placed) {
    const over = name in budget && ms > budget[name];
    const text = `${NAMES[name]} ${Math.round(ms)}${name in budget ? ` of ${budget[name]}` : ""}`;
    const part = element("span", name);
    part.append(element("span", over ? "over" : "within", text));
    stages.append(part);
  }
  item.append(sum, svg, stages);
  return item;
}

function rectangle(name, x, width) {
  const rect = document.createElementNS(SVG, "rect");
  rect.setAttribute("class", name);
  for (const [key, value] of Object.entries({ x, width, y: 0, height: 10 })) rect.setAttribute(key, value);
  return rect;
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}
