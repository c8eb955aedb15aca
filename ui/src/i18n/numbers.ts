// Numbers with units and no more digits than they deserve.

const BYTE_UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
export const UNKNOWN = "–";

/** Digits after the point that show about three significant digits of `size`. */
export function decimalsFor(size: number): number {
  const magnitude = Math.abs(size);
  if (magnitude >= 100) return 0;
  if (magnitude >= 10) return 1;
  if (magnitude >= 1) return 2;
  return magnitude > 0 ? Math.min(6, 2 - Math.floor(Math.log10(magnitude))) : 0;
}

export function fixed(value: number, decimals: number): string {
  if (!Number.isFinite(value)) return UNKNOWN;
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** 0.0123 → "12.3 µs", 412.3 → "412 ms", 12345 → "12.3 s" */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return UNKNOWN;
  const magnitude = Math.abs(ms);
  if (magnitude >= 10_000) return `${fixed(ms / 1000, decimalsFor(ms / 1000))} s`;
  if (magnitude >= 1 || magnitude === 0) return `${fixed(ms, decimalsFor(ms))} ms`;
  return `${fixed(ms * 1000, Math.min(1, decimalsFor(ms * 1000)))} µs`;
}

/** Two step times beside each other: "412 → 351 ms", each with its unit where the units differ. */
export function durationChange(before: number, after: number): string {
  const [left, right] = [duration(before), duration(after)];
  const [number, unit] = left.split(" ");
  return right.endsWith(` ${unit}`) ? `${number} → ${right}` : `${left} → ${right}`;
}

/** How many times as fast: "1.17" for 412 → 351 ms. */
export const speedup = (times: number | null): string => (times === null ? UNKNOWN : fixed(times, 2));

export function bytes(size: number): string {
  if (!Number.isFinite(size)) return UNKNOWN;
  const power = unitPower(size);
  const scaled = size / 1000 ** power;
  return `${fixed(scaled, power === 0 ? 0 : decimalsFor(scaled))} ${BYTE_UNITS[power]}`;
}

const BINARY_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Sizes of packets and of memory are powers of two to people who set them. */
export function binaryBytes(size: number): string {
  if (!Number.isFinite(size)) return UNKNOWN;
  const power = size >= 1 ? Math.min(4, Math.floor(Math.log2(size) / 10)) : 0;
  const scaled = size / 1024 ** power;
  return `${fixed(scaled, Number.isInteger(scaled) ? 0 : 1)} ${BINARY_UNITS[power]}`;
}

export function rate(gigabytesPerSecond: number): string {
  if (!Number.isFinite(gigabytesPerSecond)) return UNKNOWN;
  return `${fixed(gigabytesPerSecond, Math.min(2, decimalsFor(gigabytesPerSecond)))} GB/s`;
}

export function percent(fraction: number, decimals?: number): string {
  if (!Number.isFinite(fraction)) return UNKNOWN;
  const value = Math.abs(fraction) < 0.0005 ? 0 : fraction * 100;
  return `${fixed(value, decimals ?? (Math.abs(value) < 9.95 && value !== 0 ? 1 : 0))} %`;
}

export function signedPercent(fraction: number): string {
  const text = percent(Math.abs(fraction));
  if (!Number.isFinite(fraction) || Math.abs(fraction) < 0.0005) return text;
  return `${fraction < 0 ? "−" : "+"}${text}`;
}

export const count = (value: number): string => fixed(value, 0);

export interface ColumnFormat {
  unit: string;
  format: (value: number) => string;
}

/** One unit and one number of decimals for a whole column, so that its numbers align. */
export function msColumn(values: ArrayLike<number>): ColumnFormat {
  const most = largest(values);
  const decimals = most >= 1000 || most === 0 ? 0 : most >= 10 ? 1 : most >= 1 ? 2 : 3;
  return { unit: "ms", format: (value) => fixed(value, decimals) };
}

export function bytesColumn(values: ArrayLike<number>): ColumnFormat {
  const most = largest(values);
  // From bytes to gigabytes in one column: each number carries its own unit, or the small ones would read 0.0.
  if (Array.from(values).some((value) => value > 0 && value < most / 300)) return { unit: "", format: bytes };
  const power = unitPower(most);
  const decimals = power === 0 ? 0 : most / 1000 ** power >= 100 ? 0 : most / 1000 ** power >= 10 ? 1 : 2;
  return { unit: BYTE_UNITS[power], format: (value) => fixed(value / 1000 ** power, decimals) };
}

/** Memory of cards is sold in powers of two: a card of 64 GiB must not read 68.7 GB. */
export function memoryColumn(values: ArrayLike<number>): ColumnFormat {
  const most = largest(values);
  if (Array.from(values).some((value) => value > 0 && value < most / 300)) return { unit: "", format: binaryBytes };
  const power = most >= 1 ? Math.min(4, Math.floor(Math.log2(most) / 10)) : 0;
  const decimals = power === 0 || most / 1024 ** power >= 100 ? 0 : most / 1024 ** power >= 10 ? 1 : 2;
  return { unit: BINARY_UNITS[power], format: (value) => fixed(value / 1024 ** power, decimals) };
}

export function rateColumn(values: ArrayLike<number>): ColumnFormat {
  const decimals = largest(values) >= 100 ? 1 : 2;
  return { unit: "GB/s", format: (value) => fixed(value, decimals) };
}

/** [1,2,3,7,9,10] → "1–3, 7, 9–10" */
export function ranges(values: number[], most = 6): string {
  const sorted = [...values].sort((a, b) => a - b);
  const runs: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end++;
    runs.push(end > i ? `${sorted[i]}–${sorted[end]}` : `${sorted[i]}`);
    i = end + 1;
  }
  return runs.length > most ? `${runs.slice(0, most).join(", ")}, …` : runs.join(", ");
}

function unitPower(size: number): number {
  const magnitude = Math.abs(size);
  return magnitude >= 1000 ? Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log10(magnitude) / 3 + 1e-9)) : 0;
}

function largest(values: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}
