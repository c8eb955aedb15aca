// The timeline of all ranks on one clock, with search, sums, the critical path and an export for Perfetto.
import { readRankList } from "../../api/rankList";
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { BinaryTable } from "../../api/binaryColumns";
import { address, post, Problem, useColumns, usePolling, type Progress } from "../../api/client";
import { useRunData } from "../../api/runData";
import { Timeline, type Selection } from "../../charts/Timeline";
import type { Tile, View } from "../../charts/timelineDrawing";
import { laneList, type LaidLane } from "../../charts/timelineLanes";
import { Title } from "../../components/Filters";
import { ProblemMessage } from "../../components/ProblemMessage";
import { ProgressBar } from "../../components/ProgressBar";
import { useSetting } from "../../components/router";
import { Empty } from "../../components/Section";
import { count, duration } from "../../i18n/numbers";
import { isKey, useText, type Text } from "../../i18n/text";
import type { Hit } from "../../api/types";
import { SearchHits } from "./SearchHits";
import { SelectionSums } from "./SelectionSums";
import { segmentsOf, useTiles } from "./tiles";
import { inside, useLanes, useWindow, type LaneState } from "./timelineState";

export function TimelinePage({ run }: { run: string }) {
  const t = useText();
  const path = `runs/${encodeURIComponent(run)}/timeline`;
  const [state, setState] = useState<Progress | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const ask = (): Promise<void> =>
    post<Progress>(address(`${path}/open`)).then(setState, (error: unknown) => {
      if (error instanceof Problem) setProblem(error);
    });
  useEffect(() => {
    void ask();
  }, [run]);
  usePolling(ask, 300, state?.phase !== "ready" && state?.phase !== "failed" && !problem);
  const asked = useColumns(state?.phase === "ready" ? address(path) : null);
  return (
    <>
      <Title title={t("ui.nav.timeline")} />
      {(problem ?? asked.problem) && <ProblemMessage problem={(problem ?? asked.problem)!} />}
      {state?.phase === "failed" && (
        <Empty title={t("ui.web.timeline.none")} text={[state.message, state.hint].filter(Boolean).join(" – ")} />
      )}
      {state && !["ready", "failed"].includes(state.phase) && (
        <div class="opening">
          <ProgressBar state={state} />
        </div>
      )}
      {asked.value && <LoadedTimeline run={run} table={asked.value} />}
    </>
  );
}

const HEIGHT = 560;

function LoadedTimeline({ run, table }: { run: string; table: BinaryTable }) {
  const t = useText();
  const { focus } = useRunData();
  const path = `runs/${encodeURIComponent(run)}/timeline`;
  const length = Number(table.about["length"]);
  const lanes = useLanes(table.columns);
  const [view, setView] = useWindow(length);
  const [search, setSearch] = useSetting("q");
  const [selecting, setSelecting] = useState(false);
  const [selection, setSelection] = useState<Selection | null>(null);
  const [visible, setVisible] = useState<LaidLane[]>([]);
  const [show, setShow] = useState<number | null>(() => (focus.ranks.size ? [...focus.ranks][0] : null));
  const [fetchTile, failed] = useTiles(path);
  const criticalPath = useCriticalPath(path);
  const tip = useCallback((tile: Tile, i: number, lane: LaidLane) => tipOf(tile, i, lane, t), [t]);
  const problem = criticalPath.problem ?? failed;
  const showHit = (hit: Hit): void => {
    const middle = hit.start + hit.duration / 2;
    const around = Math.max(hit.duration * 6, 2000);
    setView(inside({ begin: middle - around / 2, end: middle + around / 2 }, length));
    setShow(hit.rank);
    const isRecorded = lanes.all.some((one) => one.recorded.some((lane) => lane.index === hit.lane));
    if (isRecorded && !lanes.open.has(hit.rank)) lanes.fold(hit.rank);
  };
  return (
    <>
      <TimelineFacts table={table} ranks={lanes.all.length} />
      <div class="controls">
        <TextInput name="ranks" value={lanes.rankText} onChange={lanes.setRankText} />
        <TextInput name="search" value={search} onChange={setSearch} />
        <TimelineButtons
          lanes={lanes}
          criticalPath={criticalPath}
          selecting={selecting}
          onSelecting={setSelecting}
          isWhole={view.begin <= 0 && view.end >= length}
          onWhole={() => setView({ begin: 0, end: length })}
        />
        <a class="export" href={exportAddress(path, view, visible)} download>
          {t("ui.web.timeline.export")}
        </a>
      </div>
      {problem && <ProblemMessage problem={problem} />}
      {lanes.layout.lanes.length === 0 ? (
        <Empty
          title={
            readRankList(lanes.rankText) === null
              ? t("ui.web.filter.badranks", { text: lanes.rankText })
              : t("ui.web.timeline.norank")
          }
          text={t("ui.web.timeline.norank.text")}
        />
      ) : (
        <Timeline
          layout={lanes.layout}
          length={length}
          view={view}
          onView={setView}
          fetchTile={fetchTile}
          open={lanes.open}
          foldable={lanes.foldable}
          onFold={lanes.fold}
          marked={focus.ranks}
          path={criticalPath.segments}
          search={search}
          selecting={selecting}
          onSelect={setSelection}
          onVisible={setVisible}
          tip={tip}
          label={t("ui.web.timeline.label", { n: lanes.ranks })}
          height={Math.min(HEIGHT, lanes.layout.height + 40)}
          show={show}
          words={{ rank: (rank) => t("ui.name.rank", { n: rank }), track: (track) => trackName(track, t) }}
        />
      )}
      <TimelineLegend withPath={criticalPath.wanted} />
      <p class="note">{t("ui.web.timeline.hint")}</p>
      {selection && <SelectionSums run={run} selection={selection} />}
      {search.trim().length > 1 && <SearchHits run={run} search={search.trim()} onShow={showHit} />}
    </>
  );
}

/** The critical path, fetched once it is wanted. */
function useCriticalPath(path: string) {
  const [setting, setSetting] = useSetting("path");
  const wanted = setting === "1";
  const asked = useColumns(wanted ? address(`${path}/path`) : null);
  const segments = useMemo(() => (asked.value ? segmentsOf(asked.value) : []), [asked.value]);
  return { wanted, toggle: () => setSetting(wanted ? "" : "1"), segments, problem: asked.problem };
}

function TimelineFacts({ table, ranks }: { table: BinaryTable; ranks: number }) {
  const t = useText();
  const { events, length, hidden } = table.about;
  return (
    <p class="note">
      {t("ui.web.timeline.note", {
        events: count(Number(events)),
        ranks: count(ranks),
        length: duration(Number(length) / 1e6),
      })}{" "}
      {Number(hidden) > 0 && t("ui.web.timeline.hidden", { n: count(Number(hidden)) })}
    </p>
  );
}

interface TextInputProps {
  name: "ranks" | "search";
  value: string;
  onChange: (text: string) => void;
}

function TextInput({ name, value, onChange }: TextInputProps) {
  const t = useText();
  return (
    <label class="pick">
      <span>{t(`ui.web.timeline.${name}`)}</span>
      <input
        type="search"
        size={name === "ranks" ? 12 : 16}
        name={name === "ranks" ? "ranks" : "q"}
        placeholder={name === "ranks" ? "0-7, 12" : undefined}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </label>
  );
}

interface TimelineButtonsProps {
  lanes: LaneState;
  criticalPath: { wanted: boolean; toggle: () => void };
  selecting: boolean;
  onSelecting: (selecting: boolean) => void;
  isWhole: boolean;
  onWhole: () => void;
}

function TimelineButtons({ lanes, criticalPath, selecting, onSelecting, isWhole, onWhole }: TimelineButtonsProps) {
  const t = useText();
  return (
    <>
      <button type="button" aria-pressed={criticalPath.wanted} onClick={criticalPath.toggle}>
        {t("ui.web.timeline.path")}
      </button>
      <button type="button" aria-pressed={selecting} onClick={() => onSelecting(!selecting)}>
        {t("ui.web.timeline.select")}
      </button>
      <button type="button" aria-pressed={lanes.thin} onClick={() => lanes.setThin(!lanes.thin)}>
        {t("ui.web.timeline.thin")}
      </button>
      <button type="button" onClick={onWhole} disabled={isWhole}>
        {t("ui.web.timeline.whole")}
      </button>
    </>
  );
}

const KINDS = [
  ["tail", "step"],
  ["compute", "compute"],
  ["exposed", "communication"],
  ["data", "host"],
  ["waiting-deep", "other"],
  ["free", "free"],
] as const;

function TimelineLegend({ withPath }: { withPath: boolean }) {
  const t = useText();
  return (
    <ul class="legend">
      {KINDS.map(([color, name]) => (
        <li key={name}>
          <i class={color} />
          {t(`ui.web.timeline.kind.${name}`)}
        </li>
      ))}
      {withPath && (
        <li>
          <i class="line" />
          {t("ui.web.timeline.path.legend")}
        </li>
      )}
    </ul>
  );
}

/** The visible lanes and window as a trace for Perfetto. */
const exportAddress = (path: string, view: View, visible: LaidLane[]): string =>
  address(`${path}/export`, {
    begin: Math.floor(view.begin),
    end: Math.max(Math.floor(view.begin) + 1, Math.ceil(view.end)),
    lanes: laneList(visible.map((lane) => lane.index).sort((a, b) => a - b)),
  });

function tipOf(tile: Tile, i: number, lane: LaidLane, t: Text) {
  const lines: [string, string][] = [
    [t("ui.name.rank_title", { n: lane.rank }), trackName(lane.track, t)],
    [t("ui.web.timeline.at"), duration(tile.start[i] / 1e6)],
    [t("ui.web.timeline.lasts"), duration(tile.duration[i] / 1e6)],
  ];
  if (tile.count[i] > 1)
    lines.push([t("ui.web.timeline.merged", { n: count(tile.count[i]) }), duration(tile.busy[i] / 1e6)]);
  return { title: tile.names[tile.name[i]] ?? "", lines };
}

function trackName(track: string, t: Text): string {
  const key = `ui.web.track.${track}`;
  return isKey(key) ? t(key) : track;
}
