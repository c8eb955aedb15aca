import { describe, expect, it } from "vitest";
import { decodeColumns } from "../src/api/binaryColumns";
import { laneList, layOut, visibleLanes, type RankLanes } from "../src/charts/timelineLanes";

const lane = (index: number, rank: number, track: string, row = 0, recorded = false) => ({
  index,
  rank,
  track,
  row,
  events: 1,
  recorded,
});
const ranks: RankLanes[] = [
  { rank: 0, summary: [lane(0, 0, "steps"), lane(1, 0, "computing")], recorded: [lane(2, 0, "Stream 1", 0, true)] },
  { rank: 1, summary: [lane(3, 1, "steps")], recorded: [] },
  { rank: 2, summary: [], recorded: [lane(4, 2, "Stream 1", 0, true)] },
];

describe("lanes of a timeline", () => {
  it("shows recorded tracks of unfolded ranks, and of ranks that have nothing else", () => {
    expect(layOut(ranks, new Set(), 15).lanes.map((one) => one.index)).toEqual([0, 1, 3, 4]);
    expect(layOut(ranks, new Set([0]), 15).lanes.map((one) => one.index)).toEqual([0, 1, 2, 3, 4]);
  });

  it("finds the lanes inside a window", () => {
    const layout = layOut(ranks, new Set([0]), 15);
    expect(visibleLanes(layout, 0, layout.height)).toHaveLength(5);
    expect(visibleLanes(layout, layout.lanes[1].y, layout.lanes[2].y + 1).map((one) => one.index)).toEqual([1, 2]);
  });

  it("writes lanes as people do", () => {
    expect(laneList([0, 1, 2, 7, 9, 10])).toBe("0-2,7,9-10");
  });
});

describe("columns as bytes", () => {
  it("are used as they lie", () => {
    const header = new TextEncoder().encode(
      JSON.stringify({
        rows: 2,
        more: 3,
        columns: [
          { name: "a", type: "f8", at: 0 },
          { name: "b", type: "u1", at: 16, texts: ["x", null] },
        ],
      }),
    );
    const start = Math.ceil((8 + header.length) / 8) * 8;
    const bytes = new Uint8Array(start + 24);
    bytes.set(new TextEncoder().encode("PLC1"));
    new DataView(bytes.buffer).setUint32(4, header.length, true);
    bytes.set(header, 8);
    new Float64Array(bytes.buffer, start, 2).set([1.5, NaN]);
    bytes.set([1, 0], start + 16);
    const { columns, about } = decodeColumns(bytes.buffer);
    expect(Array.from(columns.num("a"))).toEqual([1.5, NaN]);
    expect(columns.text("b")).toEqual([null, "x"]);
    expect(about["more"]).toBe(3);
  });

  it("refuse anything else", () => expect(() => decodeColumns(new ArrayBuffer(16))).toThrow());
});
