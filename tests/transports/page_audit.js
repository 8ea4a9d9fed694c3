// Looks at the page as it is drawn now, and gives a list of what is wrong with it: contrast (WCAG 2.2, 1.4.3 and 1.4.11),
// names (4.1.2), target size (2.5.8), reflow (1.4.10).

const TEXT = 4.5;
const LARGE_TEXT = 3;
const CONTROL = 3;

export function audit() {
  return [...contrast(), ...controls(), ...reflow()];
}

function* contrast() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !isSeen(element)) continue;
    yield* judge(element, node.data.trim(), getComputedStyle(element)[element instanceof SVGElement ? "fill" : "color"]);
  }
  for (const input of document.querySelectorAll("input")) {
    yield* judge(input, input.value || "an input", getComputedStyle(input).color);
    yield* judge(input, input.placeholder, getComputedStyle(input, "::placeholder").color);
  }
}

function* judge(element, text, color) {
  const style = getComputedStyle(element);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight) >= 700);
  const ratio = contrastOf(parse(color), ground(element));
  if (ratio < (large ? LARGE_TEXT : TEXT)) yield `"${text}" has a contrast of ${ratio.toFixed(2)} (${color})`;
}

function* controls() {
  for (const element of document.querySelectorAll("button, input, summary, [tabindex]")) {
    if (!isSeen(element)) continue;
    const box = element.getBoundingClientRect();
    const name = element.getAttribute("aria-label") || element.labels?.[0]?.textContent || element.innerText;
    if (!name?.trim()) yield `<${element.localName} id=${element.id}> has no name`;
    if (box.width < 24 || box.height < 24) yield `${name} is ${box.width} by ${box.height} pixels`;
    if (element.scrollWidth > element.clientWidth + 1) yield `${name} does not fit into itself`;
    if (!["button", "input"].includes(element.localName) || element.disabled) continue;
    const style = getComputedStyle(element);
    const around = ground(element.parentElement);
    const ratio = Math.max(contrastOf(parse(style.borderTopColor), around), contrastOf(parse(style.backgroundColor), around));
    if (ratio < CONTROL) yield `the edge of ${name} has a contrast of ${ratio.toFixed(2)}`;
  }
  for (const bar of document.querySelectorAll(".meter span, #turns rect:not(.ground), #graph rect")) {
    const style = getComputedStyle(bar);
    const color = bar.localName !== "rect" ? style.backgroundColor : bar.closest("#graph") ? style.stroke : style.fill;
    const under = bar.closest("#graph, #turns") ? ground(bar.closest("div, ol")) : ground(bar.closest("section"));
    const ratio = contrastOf(parse(color), under);
    if (ratio < CONTROL) yield `a bar (${bar.getAttribute("class") || bar.localName}) has a contrast of ${ratio.toFixed(2)}`;
  }
}

function* reflow() {
  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) yield `the page is ${scrollWidth} pixels wide on a screen of ${innerWidth}`;
}

function isSeen(element) {
  return element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !element.closest(".unseen, [hidden], title");
}

// What is painted behind an element, its own ground included.
function ground(element) {
  if (element instanceof SVGElement) {
    const box = element.parentElement.querySelector("rect");
    if (box && element.localName === "text") return parse(getComputedStyle(box).fill);
  }
  for (let at = element; at; at = at.parentElement) {
    const color = parse(getComputedStyle(at).backgroundColor);
    if (color.alpha === 1) return color;
    if (color.alpha > 0) throw new Error(`a ground that one can see through: ${at.localName}`);
  }
  return parse("rgb(255, 255, 255)");
}

function parse(color) {
  const parts = color.match(/[\d.]+/g)?.map(Number);
  if (!color.startsWith("rgb") || !parts) throw new Error(`not a color that is known here: ${color}`);
  return { channels: parts.slice(0, 3), alpha: parts[3] ?? 1 };
}

function contrastOf(a, b) {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

function luminance({ channels }) {
  const [r, g, b] = channels.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
