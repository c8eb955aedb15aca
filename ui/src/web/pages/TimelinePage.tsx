// The timeline of all ranks on one clock, with search, sums, the critical path and a way out to Perfetto.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Timeline, type Selection } from "../../charts/Timeline";
import { STEPS, type PathSegment, type Tile, type View } from "../../charts/timelineDrawing";
import { Empty } from "../../components/Section";
import { laneList, layOut, parseRanks, readLanes, type LaidLane } from "../../data/lanes";
import type { BinaryTable } from "../../data/binary";
import { count, duration } from "../../format/numbers";
import { useText } from "../../i18n/text";
import { useScene } from "../../views/context";
import { address, getColumns, post, Problem, useColumns, useJson, usePolling, type Progress } from "../api";
import { Title } from "../parts/Filters";
import { ProgressBar } from "../parts/ProgressBar";
import { Trouble } from "../parts/Trouble";
import { useRouter, useSetting } from "../router";
import { useWords, type WebKey, isWebKey } from "../words";

export function TimelinePage({ run }: { run: string }) {
  const w = useWords();
  const path = `runs/${encodeURIComponent(run)}/timeline`;
  const [state, setState] = useState<Progress | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const ask = (): void => { post<Progress>(address(`${path}/open`)).then(setState, (error: unknown) => { if (error instanceof Problem) setProblem(error); }); };
  useEffect(ask, [run]);
  usePolling(ask, 300, state?.phase !== "ready" && state?.phase !== "failed" && !problem);
  const asked = useColumns(state?.phase === "ready" ? address(path) : null);
  return (
    <>
      <Title title={w("timeline.title")} />
      {(problem ?? asked.problem) && <Trouble problem={(problem ?? asked.problem)!} />}
      {state?.phase === "failed" && <Empty title={w("timeline.none")} text={[state.message, state.hint].filter(Boolean).join(" – ")} />}
      {state && !["ready", "failed"].includes(state.phase) && <div class="opening"><ProgressBar state={state} /></div>}
      {asked.value && <Loaded run={run} table={asked.value} />}
    </>
  );
}

const KINDS = [["tail", "step"], ["compute", "compute"], ["exposed", "communication"], ["data", "host"], ["waiting-deep", "other"], ["free", "free"]] as const;
const HEIGHT = 560;
/** With more ranks than this lanes are thin at first. */
const MANY = 48;

function Loaded({ run, table }: { run: string; table: BinaryTable }) {
  const w = useWords();
  const t = useText();
  const { place, set } = useRouter();
  const { cluster, focus } = useScene();
  const path = `runs/${encodeURIComponent(run)}/timeline`;
  const length = Number(table.about["length"]);
  const all = useMemo(() => readLanes(table.columns).sort((a, b) => (cluster.place.get(a.rank) ?? a.rank) - (cluster.place.get(b.rank) ?? b.rank)), [table, cluster]);
  const [rankText, setRankText] = useSetting("ranks");
  const [size, setSize] = useSetting("size", all.length > MANY ? "thin" : "normal");
  const open = useMemo(() => parseRanks(place.query.get("open") ?? "") ?? new Set<number>(), [place]);
  const wanted = useMemo(() => parseRanks(rankText), [rankText]);
  const shown = useMemo(() => (wanted ? all.filter((one) => wanted.has(one.rank)) : all), [all, wanted]);
  const openKey = [...open].join(",");
  const layout = useMemo(() => layOut(shown, open, size === "thin" ? 5 : 15), [shown, openKey, size]);
  const foldable = useMemo(() => new Set(all.filter((one) => one.recorded.length > 0 && one.summary.length > 0).map((one) => one.rank)), [all]);
  const [view, setView] = useAddressView(length);
  const [search, setSearch] = useState(place.query.get("q") ?? "");
  const [selecting, setSelecting] = useState(false);
  const [selection, setSelection] = useState<Selection | null>(null);
  const [visible, setVisible] = useState<LaidLane[]>([]);
  const [show, setShow] = useState<number | null>(() => (focus.ranks.size ? [...focus.ranks][0] : null));
  const [failed, setFailed] = useState<Problem | null>(null);
  const withPath = place.query.get("path") === "1";
  const asked = useColumns(withPath ? address(`${path}/path`) : null);
  const segments = useMemo(() => (asked.value ? segmentsOf(asked.value) : []), [asked.value]);
  const fetchTile = useCallback(async (lanes: LaidLane[], wantedView: View, width: number, signal: AbortSignal): Promise<Tile> => {
    const indexes = lanes.map((lane) => lane.index).sort((a, b) => a - b);
    try {
      const answer = await getColumns(address(`${path}/slices`, { begin: wantedView.begin, end: wantedView.end, width, lanes: laneList(indexes) }), signal);
      setFailed(null);
      return tileOf(answer, indexes, wantedView, (n) => t("steps.tip", { n }));
    } catch (error) {
      if (!signal.aborted && error instanceof Problem) setFailed(error);
      throw error;
    }
  }, [path, t]);
  const fold = useCallback((rank: number) => {
    if (!foldable.has(rank)) return;
    const next = new Set(open);
    if (!next.delete(rank)) next.add(rank);
    set({ open: [...next].sort((a, b) => a - b).join(",") });
  }, [openKey, foldable]);
  const tip = useCallback((tile: Tile, i: number, lane: LaidLane) => ({
    title: tile.names[tile.name[i]] ?? "",
    lines: [
      [t("Rank", { n: lane.rank }), trackName(lane.track, w)], [w("timeline.at"), duration(tile.start[i] / 1e6)], [w("timeline.lasts"), duration(tile.duration[i] / 1e6)],
      ...(tile.count[i] > 1 ? [[w("timeline.merged", { n: count(tile.count[i]) }), duration(tile.busy[i] / 1e6)]] : []),
    ] as [string, string][],
  }), [t, w]);
  const exporting = address(`${path}/export`, { begin: Math.floor(view.begin), end: Math.max(Math.floor(view.begin) + 1, Math.ceil(view.end)), lanes: laneList(visible.map((lane) => lane.index).sort((a, b) => a - b)) });
  const lanesWithEvents = Number(table.about["hidden"]);
  return (
    <>
      <p class="note">{w("timeline.note", { events: count(Number(table.about["events"])), ranks: count(all.length), length: duration(length / 1e6) })} {lanesWithEvents > 0 && w("timeline.hidden", { n: count(lanesWithEvents) })}</p>
      <div class="controls">
        <label class="pick"><span>{w("timeline.ranks")}</span><input type="search" size={12} name="ranks" placeholder="0-7, 12" value={rankText} onInput={(event) => setRankText(event.currentTarget.value)} /></label>
        <label class="pick"><span>{w("timeline.search")}</span><input type="search" size={16} name="q" value={search} onInput={(event) => { setSearch(event.currentTarget.value); set({ q: event.currentTarget.value }); }} /></label>
        <button type="button" aria-pressed={withPath} onClick={() => set({ path: withPath ? null : 1 })}>{w("timeline.path")}</button>
        <button type="button" aria-pressed={selecting} onClick={() => setSelecting(!selecting)}>{w("timeline.select")}</button>
        <button type="button" aria-pressed={size === "thin"} onClick={() => setSize(size === "thin" ? "normal" : "thin")}>{w("timeline.thin")}</button>
        <button type="button" onClick={() => setView({ begin: 0, end: length })} disabled={view.begin <= 0 && view.end >= length}>{w("timeline.whole")}</button>
        <a class="export" href={exporting} download>{w("timeline.export")}</a>
      </div>
      {(asked.problem ?? failed) && <Trouble problem={(asked.problem ?? failed)!} />}
      {layout.lanes.length === 0 ? <Empty title={w("timeline.norank")} text={w("timeline.norank.text")} /> : (
        <Timeline layout={layout} length={length} view={view} onView={setView} fetchTile={fetchTile} open={open} foldable={foldable} onFold={fold} marked={focus.ranks}
          path={segments} search={search} selecting={selecting} onSelect={setSelection} onVisible={setVisible} tip={tip} label={w("timeline.label", { n: shown.length })}
          height={Math.min(HEIGHT, layout.height + 40)} show={show} words={{ rank: (rank) => t("rank", { n: rank }), track: (track) => trackName(track, w) }} />
      )}
      <ul class="legend">{KINDS.map(([color, name]) => <li key={name}><i class={color} />{w(`timeline.kind.${name}`)}</li>)}{withPath && <li><i class="line" />{w("timeline.path.legend")}</li>}</ul>
      <p class="note">{w("timeline.hint")}</p>
      {selection && <Sums run={run} selection={selection} />}
      {search.trim().length > 1 && <Hits run={run} search={search.trim()} onShow={(hit) => {
        const room = Math.max(hit.duration * 6, 2000);
        setView(inside({ begin: hit.start + hit.duration / 2 - room / 2, end: hit.start + hit.duration / 2 + room / 2 }, length));
        setShow(hit.rank);
        const lane = all.flatMap((one) => one.recorded).find((one) => one.index === hit.lane);
        if (lane && !open.has(hit.rank)) fold(hit.rank);
      }} />}
    </>
  );
}

/** The window lives in the address, written when the hand rests. */
function useAddressView(length: number): [View, (view: View) => void] {
  const { place, set } = useRouter();
  const [view, setView] = useState<View>(() => {
    const [begin, end] = [Number(place.query.get("from") ?? 0), Number(place.query.get("to") ?? length)];
    return end > begin ? inside({ begin, end }, length) : { begin: 0, end: length };
  });
  const timer = useRef(0);
  const change = (next: View): void => {
    setView(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const whole = next.begin <= 0 && next.end >= length;
      set({ from: whole ? null : Math.floor(next.begin), to: whole ? null : Math.ceil(next.end) });
    }, 350);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return [view, change];
}

function inside(view: View, length: number): View {
  const span = Math.min(length, view.end - view.begin);
  const begin = Math.max(0, Math.min(view.begin, length - span));
  return { begin, end: begin + span };
}

function tileOf({ columns, about }: BinaryTable, lanes: number[], view: View, stepName: (n: string) => string): Tile {
  const lane = columns.num("lane");
  const ranges = new Map<number, [number, number]>();
  for (let i = 0; i < columns.length; ) {
    let end = i;
    while (end < columns.length && lane[end] === lane[i]) end++;
    ranges.set(lanes[lane[i]], [i, end]);
    i = end;
  }
  const [start, length, busy, name, kind, merged] = ["start", "duration", "busy", "name", "kind", "count"].map((one) => columns.num(one));
  const names = [...(about["names"] as string[])];
  // The server names steps in English; recorded events keep the names they have.
  for (const at of new Set(Array.from(name).filter((_, i) => kind[i] === STEPS))) names[at] = names[at].replace(/^step (\d+)$/, (_, n: string) => stepName(n));
  return { view, lane, start, duration: length, busy, name, kind, count: merged, names, ranges };
}

function segmentsOf({ columns }: BinaryTable): PathSegment[] {
  const [rank, start, length, kind] = ["rank", "start", "duration", "kind"].map((name) => columns.num(name));
  const op = columns.text("op");
  return Array.from({ length: columns.length }, (_, i) => ({ rank: rank[i], start: start[i], duration: length[i], kind: kind[i], op: op[i] ?? "" }));
}

function trackName(track: string, w: ReturnType<typeof useWords>): string {
  const key = `track.${track}`;
  return isWebKey(key) ? w(key as WebKey) : track;
}

interface SumsAnswer {
  events: number;
  time: number;
  names: { name: string; count: number; time: number }[];
  more: number;
}

function Sums({ run, selection }: { run: string; selection: Selection }) {
  const w = useWords();
  // The steps' own lane would top every sum and say nothing.
  const work = selection.lanes.filter((lane) => lane.recorded || lane.track !== "steps");
  const chosen = work.length ? work : selection.lanes;
  const lanes = laneList(chosen.map((lane) => lane.index).sort((a, b) => a - b));
  const asked = useJson<SumsAnswer>(address(`runs/${encodeURIComponent(run)}/timeline/sums`, { begin: selection.begin, end: Math.max(selection.begin + 1, selection.end), lanes }));
  if (asked.problem) return <Trouble problem={asked.problem} />;
  if (!asked.value) return null;
  const { names, events, time, more } = asked.value;
  return (
    <section id="sums">
      <h2>{w("timeline.sums", { span: duration((selection.end - selection.begin) / 1e6), lanes: count(chosen.length) })}</h2>
      <p class="note">{w("timeline.sums.note", { events: count(events), time: duration(time / 1e6) })}</p>
      <div class="table"><table>
        <thead><tr><th class="text" scope="col">{w("col.name")}</th><th scope="col">{w("col.count")}</th><th scope="col">{w("col.time")}</th><th class="text wide" scope="col"><span class="unseen">{w("col.share")}</span></th></tr></thead>
        <tbody>{names.slice(0, 30).map((one) => (
          <tr key={one.name}><td class="text">{one.name}</td><td>{count(one.count)}</td><td>{duration(one.time / 1e6)}</td>
            <td class="text wide"><span class="inline"><i class="compute" style={{ width: `${(100 * one.time) / (names[0].time || 1)}%` }} /></span></td></tr>
        ))}</tbody>
      </table></div>
      {more + Math.max(0, names.length - 30) > 0 && <p class="note">{w("timeline.sums.more", { n: count(more + names.length - 30) })}</p>}
    </section>
  );
}

/** What was typed, once the hand rests. */
function useSettled(text: string, milliseconds: number): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), milliseconds);
    return () => clearTimeout(timer);
  }, [text, milliseconds]);
  return settled;
}

interface Hit {
  lane: number;
  rank: number;
  name: string;
  start: number;
  duration: number;
}

function Hits({ run, search, onShow }: { run: string; search: string; onShow: (hit: Hit) => void }) {
  const w = useWords();
  const t = useText();
  const settled = useSettled(search, 200);
  const asked = useJson<{ total: number; time: number; hits: Hit[] }>(address(`runs/${encodeURIComponent(run)}/timeline/search`, { q: settled, limit: 50 }));
  if (asked.problem) return <Trouble problem={asked.problem} />;
  const answer = asked.value;
  if (!answer) return null;
  return (
    <section id="hits">
      <h2>{w("timeline.hits", { n: count(answer.total), text: search })}</h2>
      <p class="note">{w("timeline.hits.note", { time: duration(answer.time / 1e6) })}</p>
      <div class="table"><table>
        <thead><tr><th class="text" scope="col">{w("col.name")}</th><th scope="col">{w("col.rank")}</th><th scope="col">{w("timeline.at")}</th><th scope="col">{w("timeline.lasts")}</th></tr></thead>
        <tbody>{answer.hits.slice(0, 20).map((hit, i) => (
          <tr key={i}><td class="text"><button type="button" class="plain linked" onClick={() => onShow(hit)}>{hit.name}</button></td><td>{t("rank", { n: hit.rank })}</td><td>{duration(hit.start / 1e6)}</td><td>{duration(hit.duration / 1e6)}</td></tr>
        ))}</tbody>
      </table></div>
    </section>
  );
}
