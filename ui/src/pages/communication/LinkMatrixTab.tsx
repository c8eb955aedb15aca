// The link matrix of the whole cluster, sender × receiver.
import { useMemo } from "preact/hooks";
import { address, useColumns } from "../../api/client";
import { Columns } from "../../api/columns";
import { linkNumbers } from "../../api/links";
import { useRunData } from "../../api/runData";
import { Matrix } from "../../charts/Matrix";
import type { Spot } from "../../charts/matrixAxes";
import { denseGrid } from "../../charts/matrixGrid";
import { Choice } from "../../components/Choice";
import { PerChoice, Pick, StepPick, usePer } from "../../components/Filters";
import { ProblemMessage } from "../../components/ProblemMessage";
import { Empty, Section } from "../../components/Section";
import { runAddress, useRouter, useSetting } from "../../components/router";
import type { RampMark } from "../../charts/Ramp";
import type { Tip } from "../../charts/tooltip";
import { bytes, count, duration, percent, rate, UNKNOWN } from "../../i18n/numbers";
import { useText, type Key, type Text } from "../../i18n/text";
import { LinkRamp, SHOW } from "../../sections/Links";
import { matrixCells, METRICS, transportNames, type MatrixCells, type Metric } from "./linkMatrixCells";

/** A matrix of more ranks than this is shown by host: its cells would fill the memory of the browser, and no screen shows them. */
const RANKS_AT_ONCE = 2048;

export function LinkMatrixTab({ run }: { run: string }) {
  const t = useText();
  const { place } = useRouter();
  const { cluster, document } = useRunData();
  const [picked, setMetric] = useSetting("metric");
  const [wanted, setCells] = useSetting("cells", "ranks");
  const many = cluster.ranks.length > RANKS_AT_ONCE;
  const byHost = many || wanted === "hosts";
  const per = usePer();
  const asked = useColumns(
    address(`runs/${encodeURIComponent(run)}/charts/links`, {
      step: place.query.get("step"),
      by: byHost ? "host" : "rank",
      per,
    }),
  );
  const table = asked.value?.columns ?? null;
  const transports = useMemo(
    () => [...new Set(table?.text("transport") ?? [])].filter((name) => name !== null),
    [table],
  );
  // On one scale a slow kind of link looks broken: where there are several, each is first shown against what its kind reaches.
  const metric = picked || (transports.length > 1 ? "utilisation" : "bandwidth");
  if (asked.problem) return <ProblemMessage problem={asked.problem} />;
  if (table?.length === 0) return <Empty title={t("ui.links.empty")} text={t("ui.links.empty.text")} />;
  return (
    <Section id="matrix" title={t("ui.links.title", { metric: t(`ui.column.${metric}` as Key) })}>
      <div class="controls">
        <Choice
          label={t("ui.links.metric")}
          value={metric as Metric}
          onChange={setMetric}
          options={METRICS.map((value) => ({ value, label: t(`ui.column.${value}` as Key) }))}
        />
        {cluster.hosts.length > 1 && !many && (
          <Choice
            label={t("ui.links.cells")}
            value={wanted}
            onChange={setCells}
            options={[
              { value: "ranks", label: t("ui.links.cells.ranks") },
              { value: "hosts", label: t("ui.links.cells.hosts") },
            ]}
          />
        )}
        <Pick
          name="transport"
          label={t("ui.column.transport")}
          all={t("ui.filter.all")}
          options={transports.map((name) => [name, name] as const)}
        />
        <StepPick all />
        <PerChoice />
      </div>
      {table && <MatrixChart run={run} table={table} metric={metric as Metric} byHost={answersHosts(asked.answered)} />}
      {document.unplaced_links > 0 && (
        <p class="note">{t("ui.web.comm.unplaced.matrix", { n: count(document.unplaced_links) })}</p>
      )}
    </Section>
  );
}

/** What the table on the screen holds, which is the last choice while the next one is still in flight. */
const answersHosts = (answered: string | null): boolean =>
  new URLSearchParams(answered?.split("?")[1]).get("by") === "host";

interface MatrixChartProps {
  run: string;
  table: Columns;
  metric: Metric;
  byHost: boolean;
}

function MatrixChart({ run, table, metric, byHost }: MatrixChartProps) {
  const t = useText();
  const { place, go } = useRouter();
  const { cluster } = useRunData();
  const transport = place.query.get("transport") ?? "";
  const cells = useMemo(
    () => matrixCells(table, { cluster, byHost, transport, metric }),
    [table, cluster, byHost, transport, metric],
  );
  const marked = useMarkedLinks(byHost);
  const grid = useMemo(() => denseGrid(cells.fractions, cells.axis.count, marked), [cells, marked]);
  const zoomed = place.query.get("finding") !== null;
  const target = useMemo(() => (zoomed && marked[0]) || null, [marked, zoomed]);
  const openLinks = ({ row, column }: Spot): void => {
    const ends = byHost
      ? { host: cluster.hosts[row]?.name }
      : { src: cluster.order[row].rank, dst: cluster.order[column].rank };
    go(runAddress(run, "communication", { tab: "links", ...ends }));
  };
  return (
    <>
      <Matrix
        axis={cells.axis}
        grid={grid}
        target={target}
        label={t("ui.links.label", { n: count(cells.links) })}
        tip={(spot) => tipOf(table, cells, spot, t)}
        onPick={openLinks}
      />
      <LinkRamp
        metric={metric}
        ends={cells.ends}
        names={transportNames(table)}
        marks={marksOf(table, cells, marked, metric)}
      >
        <span class="none">
          <b aria-hidden="true" />
          {t(metric === "ratio" ? "ui.web.comm.matrix.noclass" : "ui.web.comm.matrix.none")}
        </span>
      </LinkRamp>
      <p class="note">
        {t("ui.web.comm.matrix.hint")} {t("ui.web.comm.matrix.pick")}
      </p>
    </>
  );
}

/** The links the chosen finding names, as cells. */
function useMarkedLinks(byHost: boolean): Spot[] {
  const { cluster, focus } = useRunData();
  return useMemo(() => {
    const placeOf = (rank: string): number | undefined =>
      byHost ? cluster.byRank.get(Number(rank))?.hostIndex : cluster.place.get(Number(rank));
    return [...focus.links].flatMap((key) => {
      const [row, column] = key.split("-").map(placeOf);
      return row === undefined || column === undefined ? [] : [{ row, column }];
    });
  }, [focus, cluster, byHost]);
}

/** The values of the links the finding names, the first three. */
function marksOf(table: Columns, cells: MatrixCells, marked: Spot[], metric: Metric): RampMark[] {
  if (metric === "transport") return [];
  const values = table.num(metric);
  return marked
    .map((spot) => ({ spot, at: spot.row * cells.axis.count + spot.column }))
    .filter(({ at }) => Number.isFinite(cells.fractions[at]))
    .slice(0, 3)
    .map(({ spot, at }) => ({
      at: cells.fractions[at],
      label: `${cells.title(spot)} ${SHOW[metric](values[cells.rows[at]])}`,
    }));
}

function tipOf(table: Columns, cells: MatrixCells, spot: Spot, t: Text): Tip | null {
  const row = cells.rows[spot.row * cells.axis.count + spot.column] ?? -1;
  if (row < 0) return null;
  const link = linkNumbers(table, row);
  const used = Number.isFinite(link.utilisation) ? ` · ${percent(link.utilisation)}` : "";
  return {
    title: `${cells.title(spot)} · ${link.transport}`,
    lines: [
      [t("ui.column.bandwidth"), `${rate(link.bandwidth)}${used}`],
      [t("ui.column.ratio"), Number.isFinite(link.ratio) ? percent(link.ratio) : UNKNOWN],
      [t("ui.column.bytes"), bytes(link.bytes)],
      [t("ui.column.time"), duration(link.time)],
    ] as [string, string][],
  };
}
