import { describe, expect, it } from "vitest";
import { communicationParts } from "../src/api/communicationParts";

describe("the time in communication operators", () => {
  it("is transfer, waiting and neither, which add up", () => {
    expect(communicationParts(100, 20, 30)).toEqual([30, 20, 50]);
  });
  it("is transfer where it is not waiting and no transfers were recorded", () => {
    expect(communicationParts(100, 20, NaN)).toEqual([80, 20, 0]);
  });
  it("never has parts beyond the time", () => {
    expect(communicationParts(100, 120, 30)).toEqual([0, 100, 0]);
    expect(communicationParts(100, 20, 90)).toEqual([80, 20, 0]);
    expect(communicationParts(NaN, NaN, NaN)).toEqual([0, 0, 0]);
  });
});
