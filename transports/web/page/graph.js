// The picture of the pipeline: from top to bottom, each node below all that feed it.
//
// Its one rule: the places are worked out by a pure function of the graph; drawing only puts them on the page.

const BOX = { width: 148, height: 40 };
const GAP = { x: 16, y: 26 };
const SIDE = 34; // room on each side for arrows that go past other nodes

const SVG = "http://www.w3.org/2000/svg";

// {nodes: [{name}], arrows: [{source, target, report}]} -> where each box and each arrow is.
export function layout({ nodes, arrows }) {
  const down = arrows.filter((arrow) => !arrow.report);
  const layer = new Map(nodes.map(({ name }) => [name, 0]));
  for (const _ of nodes) for (const { source, target } of down) layer.set(target, Math.max(layer.get(target), layer.get(source) + 1));
  const layers = [];
  for (const { name } of nodes) (layers[layer.get(name)] ??= []).push(name);
  const widest = Math.max(1, ...layers.map((names) => names.length));
  const width = widest * BOX.width + (widest - 1) * GAP.x + 2 * SIDE;
  const places = new Map();
  layers.forEach((names, row) => {
    const left = (width - names.length * BOX.width - (names.length - 1) * GAP.x) / 2;
    names.forEach((name, i) => places.set(name, { x: left + i * (BOX.width + GAP.x), y: 1 + row * (BOX.height + GAP.y), ...BOX, row }));
  });
  return {
    width,
    height: layers.length * (BOX.height + GAP.y) - GAP.y + 2,
    boxes: nodes.map(({ name }) => ({ name, ...places.get(name) })),
    arrows: arrows.map((arrow) => ({ ...arrow, d: route(places.get(arrow.source), places.get(arrow.target), width, arrow.report) })),
  };
}

// Straight to the next row; past others on the left going down, on the right going up.
function route(from, to, width, report) {
  if (to.row === from.row + 1) {
    const [x1, y1, x2] = [from.x + from.width / 2, from.y + from.height, to.x + to.width / 2];
    const bend = (to.y - y1) / 2;
    return `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${to.y - bend} ${x2} ${to.y}`;
  }
  const side = report ? 1 : -1;
  const edge = (box) => (report ? box.x + box.width : box.x);
  const reach = Math.min(Math.abs(to.row - from.row), 6) * 4 + 8;
  const out = report ? width - SIDE + reach : SIDE - reach;
  const [y1, y2] = [from.y + from.height / 2 - side * 6, to.y + to.height / 2 - side * 6];
  return `M${edge(from)} ${y1}C${out} ${y1} ${out} ${y1} ${out} ${(y1 + y2) / 2}S${out} ${y2} ${edge(to)} ${y2}`;
}

// What waits for a node, in a few characters.
export function waiting({ frames = 0, ms = 0, dropped = 0 }) {
  const parts = frames ? [ms ? `${frames} waiting · ${ms} ms` : `${frames} waiting`] : [];
  if (dropped) parts.push(`${dropped} lost`);
  return parts.join(" · ");
}

// Draws it into an element. Returns a function that takes {name: {frames, ms, dropped, busy}} and shows it.
export function draw(element, graph) {
  const { width, height, boxes, arrows } = layout(graph);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.style.maxWidth = `${width}px`;
  svg.style.margin = "0 auto";
  svg.append(make("title", {}, `Pipeline: ${boxes.map((box) => box.name).join(", ")}`), head());
  for (const { d, report, label } of arrows) {
    const path = make("path", { d, class: report ? "report" : "down", "marker-end": "url(#head)" });
    path.append(make("title", {}, label));
    svg.append(path);
  }
  const shown = new Map();
  for (const { name, x, y, width: w, height: h } of boxes) {
    const group = make("g");
    const title = make("text", { x: x + w / 2, y: y + 17 }, name);
    const depth = make("text", { x: x + w / 2, y: y + 32, class: "depth" });
    if (name.length > 19) title.setAttribute("textLength", w - 12);
    if (name.length > 19) title.setAttribute("lengthAdjust", "spacingAndGlyphs");
    group.append(make("rect", { x, y, width: w, height: h, rx: 6 }), title, depth);
    svg.append(group);
    shown.set(name, { group, depth, title });
  }
  element.replaceChildren(svg);
  return (states) => {
    for (const [name, { group, depth, title }] of shown) {
      const state = states[name] ?? {};
      group.classList.toggle("busy", Boolean(state.busy));
      depth.textContent = waiting(state);
      title.setAttribute("y", Number(depth.getAttribute("y")) - (depth.textContent ? 15 : 8));
    }
  };
}

function head() {
  const defs = make("defs");
  const marker = make("marker", { id: "head", viewBox: "0 0 6 6", refX: 5.5, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" });
  marker.append(make("path", { d: "M0 0L6 3L0 6Z" }));
  defs.append(marker);
  return defs;
}

function make(tag, attributes = {}, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
