// One tooltip for the whole page, filled with text only: nothing from the data is ever parsed as HTML.

export interface Tip {
  title: string;
  lines: [label: string, value: string][];
}

let box: HTMLDivElement | null = null;

export function showTip(x: number, y: number, tip: Tip): void {
  const element = ensureBox();
  element.replaceChildren(heading(tip.title), ...tip.lines.map(line));
  element.hidden = false;
  const { width, height } = element.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - width - 10 : x + 14;
  const top = y + 14 + height > innerHeight ? y - height - 10 : y + 14;
  element.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

export function hideTip(): void {
  if (box) box.hidden = true;
}

function ensureBox(): HTMLDivElement {
  if (!box) {
    box = document.createElement("div");
    box.className = "tip";
    box.setAttribute("role", "status");
    document.body.append(box);
  }
  return box;
}

function heading(text: string): HTMLElement {
  const element = document.createElement("strong");
  element.textContent = text;
  return element;
}

function line([label, value]: [string, string]): HTMLElement {
  const row = document.createElement("div");
  const left = document.createElement("span");
  const right = document.createElement("b");
  left.textContent = label;
  right.textContent = value;
  row.append(left, right);
  return row;
}
