import { expect, test } from "vitest";
import { valueRange, type ValueChartData, type ValuePoint } from "../src/charts/ValueChart";

const point = (value: number, deviation: number | null = null, count: number | null = null): ValuePoint => ({
  label: String(value),
  value,
  deviation,
  count,
  culprit: false,
});
const chart = (kind: ValueChartData["kind"], points: ValuePoint[]): ValueChartData => ({
  kind,
  title: "",
  points,
  axes: ["", ""],
  legend: [],
});

test("bars start at zero, also the whisker of a noisy run fits", () => {
  const [low, high] = valueRange(chart("bars", [point(100), point(90, 20)]));
  expect(low).toBe(0);
  expect(high).toBeGreaterThanOrEqual(110);
});

test("a trend starts near its values, so that a regression of a tenth is seen", () => {
  const [low, high] = valueRange(chart("trend", [point(100, 1), point(90.5, 1)]));
  expect(low).toBeGreaterThan(80);
  expect(low).toBeLessThan(89.5);
  expect(high).toBeGreaterThan(101);
});

test("equal values are not blown up to noise", () => {
  const [low, high] = valueRange(chart("trend", [point(100), point(100.1)]));
  expect(high - low).toBeGreaterThan(10);
});

test("the straight line through the first size fits", () => {
  const [, high] = valueRange(chart("line", [point(100, null, 1), point(150, null, 4)]));
  expect(high).toBeGreaterThan(400);
});

test("an interval larger than its value does not push the values away", () => {
  const [, high] = valueRange(chart("line", [point(100, 3000, 1)]));
  expect(high).toBeLessThan(250);
});
