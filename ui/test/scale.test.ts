import { describe, expect, it } from "vitest";
import { inkOn, mix, parseHex, type Rgb } from "../src/charts/color";
import { axisRange, linear, logFraction, ticks } from "../src/charts/scale";
import { around, move, whole, zoom } from "../src/charts/viewport";

describe("scales", () => {
  it("linear maps ends to ends", () => {
    const y = linear([0, 10], [200, 0]);
    expect([y(0), y(5), y(10)]).toEqual([200, 100, 0]);
  });

  it("ticks are round and inside", () => {
    expect(ticks(0, 306, 4)).toEqual([0, 100, 200, 300]);
    expect(ticks(-22, 27, 4)).toEqual([-20, 0, 20]);
    expect(ticks(5, 5, 4)).toEqual([5]);
  });

  it("axes start at zero and hold the largest value", () => {
    const [low, high] = axisRange(304, 306);
    expect(low).toBe(0);
    expect(high).toBeGreaterThan(306);
  });

  it("a logarithmic scale puts a factor of ten at equal distance", () => {
    const scale = logFraction(1, 100);
    expect([scale(1), scale(10), scale(100), scale(0)]).toEqual([0, 0.5, 1, 0]);
    expect(logFraction(5, 5)(5)).toBe(1);
  });
});

describe("the colour ramp", () => {
  const lightness = ([red, green, blue]: Rgb): number => 0.299 * red + 0.587 * green + 0.114 * blue;

  it.each([
    ["compute", "#2b6cb0"],
    ["exposed", "#e8890c"],
  ])("grows darker towards %s, so that it reads without hue", (_, color) => {
    const ramp = [0, 0.25, 0.5, 0.75, 1].map((at) => lightness(mix(parseHex("#e6ebf2"), parseHex(color), at)));
    expect([...ramp].sort((a, b) => b - a)).toEqual(ramp);
  });

  it("text on it stays readable", () => {
    expect(inkOn(parseHex("#fff"))).toBe("#16181d");
    expect(inkOn(parseHex("#c8102e"))).toBe("#ffffff");
  });
});

describe("the visible part of a matrix", () => {
  it("zooms in on the cell under the pointer and keeps it there", () => {
    const view = zoom(whole(1024), 1024, 0.5, { column: 512, row: 256 });
    expect(view).toEqual({ span: 512, column: 256, row: 128 });
  });

  it("never leaves the matrix", () => {
    expect(move(around({ column: 3, row: 1020 }, 1024, 32), 1024, -100, 100)).toEqual({
      span: 32,
      column: 0,
      row: 992,
    });
    expect(zoom(whole(8), 8, 10, { column: 0, row: 0 })).toEqual(whole(8));
  });
});
