// Colours: the language of the product lives in CSS variables; ramps are computed from them.

export type Rgb = [number, number, number];

/** Where the ramp begins: a known value that is small must differ from the paper of what is unknown. */
export const RAMP_START = 0.12;

/** Single cells on empty paper must be seen at the pale end too. */
export const MATRIX_START = 0.28;

/** From the pale end to a colour of the style sheet, in `steps` + 1 colours: everywhere more colour is more of what is named. */
export function rampColors(color: string, steps: number, start = RAMP_START): Rgb[] {
  const [low, high] = [parseHex(variable("ramp-low")), parseHex(variable(color))];
  return Array.from({ length: steps + 1 }, (_, i) => mix(low, high, start + ((1 - start) * i) / steps));
}

export function mix(from: Rgb, to: Rgb, fraction: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(from[i] + (to[i] - from[i]) * fraction)) as Rgb;
}

export const css = (color: Rgb): string => `rgb(${color[0]} ${color[1]} ${color[2]})`;

export function parseHex(text: string): Rgb {
  const digits = text.trim().replace("#", "");
  const whole = digits.length === 3 ? [...digits].map((digit) => digit + digit).join("") : digits;
  return [0, 2, 4].map((i) => parseInt(whole.slice(i, i + 2), 16) || 0) as Rgb;
}

/** Black or white, whichever reads better on the colour. */
export function inkOn([red, green, blue]: Rgb): string {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 130 ? "#16181d" : "#ffffff";
}

/** A colour of the style sheet, as it is in the current theme. */
export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888888";
}

/** Categories spread over the lightness scale, so that they differ to every eye and in print. */
export const categoryFraction = (index: number, count: number): number =>
  count < 2 ? 0.6 : 0.15 + (0.85 * index) / (count - 1);
export const categoryColor = (index: number, count: number, color: string): string =>
  css(rampColors(color, 100, MATRIX_START)[Math.round(100 * categoryFraction(index, count))]);
