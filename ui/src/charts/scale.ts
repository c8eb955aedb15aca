// Scales and ticks: pure arithmetic, no drawing.

export type Scale = (value: number) => number;

export function linear(from: [number, number], to: [number, number]): Scale {
  const span = from[1] - from[0] || 1;
  return (value) => to[0] + ((value - from[0]) / span) * (to[1] - to[0]);
}

/** 0..1 on a logarithmic axis; what is not positive is 0. */
export function logFraction(low: number, high: number): Scale {
  if (!(low > 0) || !(high > low)) return () => 1;
  const span = Math.log(high / low);
  return (value) => (value > 0 ? clamp(Math.log(value / low) / span, 0, 1) : 0);
}

/** About `count` round values from low to high: steps of 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, count: number): number[] {
  if (!(high > low)) return [low];
  const step = niceStep((high - low) / Math.max(1, count));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** The range of an axis that holds all values; starts at zero unless everything would be squeezed into its top. */
export function axisRange(low: number, high: number, fromZero = true): [number, number] {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const start = fromZero ? Math.min(0, low) : low - (high - low || Math.abs(high) || 1) * 0.15;
  const end = high + (high - start) * 0.06;
  return [Math.max(fromZero ? -Infinity : 0, start), end > start ? end : start + 1];
}

export const clamp = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  const digit = rough / power;
  return (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
}
