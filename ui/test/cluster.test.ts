import { describe, expect, it } from "vitest";
import { packRacks } from "../src/charts/racks";
import { byExcess, readCluster, readShares } from "../src/api/cluster";
import { Columns } from "../src/api/columns";
import type { Finding } from "../src/api/document";
import { focusOn } from "../src/api/focus";
import { readLinks, slowestLinks } from "../src/api/links";

const RANKS = new Columns({
  rank: [0, 1, 2, 3],
  host: ["a", "a", "b", "b"],
  device: [0, 1, 0, null],
  stage: [0, 0, 1, 1],
  recorded: [1, 1, 1, 0],
});

const finding = (subject: Partial<Finding["subject"]>): Finding => ({
  id: "slow-rank",
  severity: "high",
  confidence: 1,
  chronic: true,
  when: null,
  gain: { step_ms_now: 1, step_ms_fixed: 1, percent: 0, speedup: 1 },
  title: "",
  evidence: [],
  advice: [],
  see: "",
  doubts: [],
  subject: { ranks: [], hosts: [], links: [], operators: [], stages: [], steps: [], ...subject },
});

describe("columns", () => {
  it("unpacks typed arrays and coded texts", () => {
    const bytes = new Uint8Array(new Float32Array([1.5, NaN]).buffer);
    const table = new Columns({
      time: { kind: "f32", base64: btoa(String.fromCharCode(...bytes)) },
      host: { kind: "texts", texts: ["a", "b", null], codes: { kind: "u8", base64: btoa("\u0001\u0002") } },
    });
    expect(Array.from(table.num("time"))).toEqual([1.5, NaN]);
    expect(table.text("host")).toEqual(["b", null]);
    expect(Array.from(table.num("absent"))).toEqual([NaN, NaN]);
  });
});

describe("the cluster", () => {
  const cluster = readCluster(RANKS);

  it("keeps ranks inside their hosts", () => {
    expect(cluster.hosts.map((host) => [host.name, host.ranks.map((rank) => rank.rank)])).toEqual([
      ["a", [0, 1]],
      ["b", [2, 3]],
    ]);
    expect(cluster.byRank.get(3)).toMatchObject({ device: null, recorded: false });
  });

  it("shows a rank's numbers as they come", () => {
    const table = new Columns({
      rank: [0, 3],
      duration: [9, 9],
      compute: [1, 8],
      exposed: [8, null],
      self_time: [1.5, 8],
      reference: [1, null],
      excess: [0.5, null],
    });
    const [first, last] = readShares(table, cluster);
    expect(first).toMatchObject({ duration: 9, selfTime: 1.5, reference: 1, excess: 0.5 });
    expect(first.parts).toMatchObject({ compute: 1, exposed: 8, waiting: 0 });
    expect([last, first].sort(byExcess)[0]).toBe(first);
  });

  it("marks ranks, else hosts, else stages; never the ends of a slow link", () => {
    const marked = (subject: Partial<Finding["subject"]>): number[] => [...focusOn(finding(subject), 0, cluster).ranks];
    expect(marked({ ranks: [1], hosts: ["a"] })).toEqual([1]);
    expect(marked({ hosts: ["b"] })).toEqual([2, 3]);
    expect(marked({ stages: [1] })).toEqual([2, 3]);
    expect(marked({ ranks: [0, 1], links: [{ src: 0, dst: 1, transport: "" }] })).toEqual([]);
    expect(marked({ ranks: [0, 1, 2, 3] })).toEqual([]);
  });

  it("fits 1,024 ranks into a column of the page", () => {
    const ranks = Array.from({ length: 1024 }, (_, rank) => rank);
    const big = readCluster(new Columns({ rank: ranks, host: ranks.map((rank) => `h${rank >> 3}`) }));
    const racks = packRacks(big.hosts, 404);
    expect(racks.height).toBeLessThan(340);
    expect(Math.max(...racks.cells.map((cell) => cell.x + racks.size))).toBeLessThanOrEqual(404);
    const cell = racks.cells[517];
    expect(racks.find(cell.x + 1, cell.y + 1)?.rank.rank).toBe(517);
  });
});

describe("links", () => {
  const table = new Columns({
    src: [0, 1, 2, 3],
    dst: [1, 2, 3, 0],
    transport: ["RDMA", "RDMA", "RDMA", "RDMA"],
    bytes: [1e9, 1e9, 1e9, 1e3],
    time: [100, 100, 200, 10],
    bandwidth: [10, 10, 5, 0.1],
    reference: [10, 10, 10, null],
    ratio: [1, 1, 0.5, null],
    busy: [1, 1, 1, 0],
  });

  it("come slowest of their class first, those without a class are left out", () => {
    const [worst, ...rest] = slowestLinks(readLinks(table), 10);
    expect(worst).toMatchObject({ src: 2, dst: 3, bandwidth: 5, reference: 10, ratio: 0.5, busy: true });
    expect(rest.map((row) => row.src)).not.toContain(3);
  });
});
