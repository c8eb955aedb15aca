import { describe, expect, it } from "vitest";
import {
  binaryBytes,
  bytes,
  bytesColumn,
  duration,
  durationChange,
  msColumn,
  percent,
  ranges,
  rate,
  signedPercent,
  speedup,
} from "../src/i18n/numbers";

describe("numbers carry units and no more digits than they deserve", () => {
  it.each([
    [412.345, "412 ms"],
    [41.23, "41.2 ms"],
    [4.123, "4.12 ms"],
    [0.0123, "12.3 µs"],
    [12_345, "12.3 s"],
    [0, "0 ms"],
    [NaN, "–"],
  ])("duration(%s) = %s", (ms, text) => expect(duration(ms)).toBe(text));

  it("two step times share their unit", () => {
    expect(durationChange(412, 351)).toBe("412 → 351 ms");
    expect(durationChange(12_345, 9_000)).toBe("12.3 s → 9,000 ms");
    expect(speedup(1.174)).toBe("1.17");
  });

  it.each([
    [999, "999 B"],
    [1000, "1.00 KB"],
    [25_165_824, "25.2 MB"],
    [1.924e12, "1.92 TB"],
  ])("bytes(%s) = %s", (size, text) => expect(bytes(size)).toBe(text));

  it("packet sizes are powers of two", () => {
    expect(binaryBytes(512)).toBe("512 B");
    expect(binaryBytes(2 ** 21)).toBe("2 MiB");
    expect(binaryBytes(1.5 * 2 ** 20)).toBe("1.5 MiB");
  });

  it("bandwidth is decimal gigabytes", () => expect(rate(17.694)).toBe("17.7 GB/s"));

  it("a difference of nothing has no sign", () => {
    expect(signedPercent(0.29)).toBe("+29 %");
    expect(signedPercent(-0.004)).toBe("−0.4 %");
    expect(signedPercent(-0.0001)).toBe("0 %");
    expect(percent(0.9713)).toBe("97 %");
  });

  it("a column has one unit and one number of decimals", () => {
    const ms = msColumn([52.58, 4]);
    expect([ms.format(52.58), ms.format(4)]).toEqual(["52.6", "4.0"]);
    const size = bytesColumn([4_194_304, 75_497_472]);
    expect([size.unit, size.format(4_194_304)]).toEqual(["MB", "4.2"]);
  });

  it("a column from bytes to megabytes lets each number have its own unit", () =>
    expect(bytesColumn([3072, 75_497_472]).format(3072)).toBe("3.07 KB"));

  it("neighbouring ranks become ranges", () => {
    expect(ranges([3, 1, 2, 9, 7, 10])).toBe("1–3, 7, 9–10");
    expect(ranges([1, 3, 5, 7], 2)).toBe("1, 3, …");
  });
});
