// Colours: the language of the product lives in CSS variables; ramps are computed from them.

export type Rgb = [number, number, number];

// Cividis: dark blue to yellow, ordered by lightness, the same to every kind of colour vision.
const CIVIDIS: Rgb[] = [
  [0, 32, 77],
  [0, 53, 110],
  [60, 77, 109],
  [97, 100, 111],
  [124, 123, 120],
  [154, 147, 117],
  [186, 173, 106],
  [221, 201, 84],
  [255, 234, 70],
];

export function cividis(fraction: number): Rgb {
  const at = Math.min(1, Math.max(0, fraction)) * (CIVIDIS.length - 1);
  const low = Math.floor(at);
  return mix(CIVIDIS[low], CIVIDIS[Math.min(low + 1, CIVIDIS.length - 1)], at - low);
}

/** On dark paper the darkest blue would vanish: there the ramp starts higher. */
const RAMP_START = { light: 0, dark: 0.3 };

/** The same, as it is drawn on the paper of a theme. */
export function ramp(fraction: number, theme: "light" | "dark"): Rgb {
  const start = RAMP_START[theme];
  return cividis(start + (1 - start) * fraction);
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
  count < 2 ? 0.25 : 0.12 + (0.8 * index) / (count - 1);
export const categoryColor = (index: number, count: number): string => css(cividis(categoryFraction(index, count)));
