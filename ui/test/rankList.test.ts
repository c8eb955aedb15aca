import { describe, expect, it } from "vitest";
import { readRankList, unreadableFilter } from "../src/api/rankList";

describe("lists of ranks", () => {
  it("are read as people type them", () => {
    expect(readRankList("0-2, 7")).toEqual([0, 1, 2, 7]);
    expect(readRankList("12，0–1")).toEqual([0, 1, 12]);
    expect(readRankList(" ")).toEqual([]);
  });

  it.each(["x", "3-", "7-3", "1;2", "0-2 7 x", "1,,2", "99999999"])("do not begin to mean something: %s", (text) => {
    expect(readRankList(text)).toBeNull();
  });

  it("name the filter that cannot be understood", () => {
    expect(unreadableFilter({ src: "0-7", dst: "a", step: 3 })).toBe("a");
    expect(unreadableFilter({ src: "0-7", dst: null, rank: 5, q: "a" })).toBeNull();
  });
});
