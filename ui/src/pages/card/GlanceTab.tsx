// One card at a glance: small charts of everything recorded of it, each leading to its tab.
import type { ComponentChildren } from "preact";
import { address, useColumns, useJson } from "../../api/client";
import { communicationParts } from "../../api/communicationParts";
import type { TableRows } from "../../api/types";
import { Curve, type Series } from "../../charts/Curve";
import { useRouter } from "../../components/router";
import { binaryBytes, duration, fixed, percent } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import type { CardTabProps } from "./cardInfo";
import { byName } from "./curves";
import { memorySeries } from "./memorySeries";

const HEIGHT = 130;
const MOST_BARS = 5;
/** Letters at the end of a name that are never cut: operators of one kind differ by their number. */
const KEPT_END = 6;

export function GlanceTab(props: CardTabProps) {
  return (
    <div class="glances">
      <Steps {...props} />
      <Operators {...props} />
      <Communication {...props} />
      <Input {...props} />
      <Memory {...props} />
    </div>
  );
}

interface GlanceProps {
  tab: string;
  title: string;
  /** Why nothing is shown, where nothing was recorded. */
  missing?: string | undefined;
  children?: ComponentChildren;
}

function Glance({ tab, title, missing, children }: GlanceProps) {
  const { set } = useRouter();
  return (
    <section class="glance" data-glance={tab}>
      <h2>
        <button type="button" class="plain linked" onClick={() => set({ tab, sort: null, page: null }, true)}>
          {title}
        </button>
      </h2>
      {missing ? <p class="note">{missing}</p> : children}
    </section>
  );
}

function Steps({ run, card }: CardTabProps) {
  const t = useText();
  const rows = useRows(run, "card-steps", { rank: card.rank, limit: 500 });
  const series = (["duration", "compute"] as const).map((column, i): Series => ({
    name: column,
    color: ["ink", "compute"][i],
    x: rows.map((row) => Number(row["step"])),
    y: rows.map((row) => (typeof row[column] === "number" ? row[column] : NaN)),
  }));
  return (
    <Glance
      tab="steps"
      title={t("ui.web.card.glance.steps")}
      missing={card.has["steps"] ? undefined : t("ui.steps.empty")}
    >
      {rows.length > 0 && <SmallCurve series={series} format={duration} label={t("ui.web.card.glance.steps")} />}
      <ul class="legend">
        {(["duration", "compute"] as const).map((column, i) => (
          <li key={column}>
            <i class="line" style={{ borderTopColor: `var(--${["ink", "compute"][i]})` }} />
            {t(`ui.column.${column}`)}
          </li>
        ))}
      </ul>
    </Glance>
  );
}

function Operators({ run, card }: CardTabProps) {
  const t = useText();
  const recorded = Boolean(card.has["operator_times"]);
  const rows = useRows(run, "operators", { rank: card.rank, sort: "-time", limit: MOST_BARS }, recorded);
  return (
    <Glance
      tab="operators"
      title={t("ui.web.card.glance.operators")}
      missing={recorded ? undefined : t("ui.web.card.operators.empty")}
    >
      <SmallBars
        rows={rows.map((row) => ({ name: String(row["type"] ?? row["name"]), ...wholeBar(Number(row["time"])) }))}
      />
    </Glance>
  );
}

function Communication({ run, card }: CardTabProps) {
  const t = useText();
  const recorded = Boolean(card.has["collectives"]);
  const rows = useRows(run, "card-collectives", { rank: card.rank, sort: "-time", limit: MOST_BARS }, recorded);
  return (
    <Glance
      tab="communication"
      title={t("ui.web.card.glance.communication")}
      missing={recorded ? undefined : t("ui.web.comm.off")}
    >
      <SmallBars
        rows={rows.map((row) => {
          const time = Number(row["time"]);
          return {
            name: String(row["name"] ?? row["op"]),
            time,
            parts: communicationParts(time, Number(row["wait"]), Number(row["transit"] ?? NaN)),
          };
        })}
        colors={["exposed", "waiting", "free"]}
      />
      {recorded && (
        <ul class="legend">
          <li>
            <i class="exposed" />
            {t("ui.column.transit")}
          </li>
          <li>
            <i class="waiting" />
            {t("ui.web.comm.waiting")}
          </li>
          <li>
            <i class="free" />
            {t("ui.web.comm.neither")}
          </li>
        </ul>
      )}
    </Glance>
  );
}

function Input({ run, card }: CardTabProps) {
  const t = useText();
  const recorded = Boolean(card.has["input_steps"]);
  const asked = useColumns(
    recorded ? address(`runs/${encodeURIComponent(run)}/charts/input`, { rank: card.rank }) : null,
  );
  const series = asked.value
    ? byName(asked.value.columns, "queue", "step", "size", ["data", "compute", "exposed"])
    : [];
  return (
    <Glance
      tab="input"
      title={t("ui.web.card.glance.input")}
      missing={recorded ? undefined : t("ui.web.card.input.empty")}
    >
      {series.length > 0 && (
        <SmallCurve series={series} format={(value) => fixed(value, 0)} label={t("ui.web.card.glance.input")} />
      )}
    </Glance>
  );
}

function Memory({ run, card }: CardTabProps) {
  const t = useText();
  const curve = Boolean(card.has["memory"]);
  const known = Boolean(card.has["rank_memory"]);
  const asked = useColumns(
    curve ? address(`runs/${encodeURIComponent(run)}/charts/memory`, { rank: card.rank }) : null,
  );
  const [peak] = useRows(run, "memory", { rank: card.rank, limit: 1 }, known);
  const series = asked.value ? memorySeries(asked.value.columns, t("ui.column.peak"), t) : [];
  const planned = asked.value?.columns.text("kind").includes("node") ?? false;
  return (
    <Glance
      tab="memory"
      title={t("ui.web.card.glance.memory")}
      missing={curve || known ? undefined : t("ui.memory.empty")}
    >
      {series.length > 0 && (
        <SmallCurve
          series={series}
          format={binaryBytes}
          unit={planned ? "" : " s"}
          label={t("ui.web.card.glance.memory")}
        />
      )}
      {peak && typeof peak["peak"] === "number" && (
        <p class="note">
          {typeof peak["capacity"] === "number"
            ? t("ui.web.card.glance.peak", {
                peak: binaryBytes(peak["peak"]),
                capacity: binaryBytes(peak["capacity"]),
                share: percent(Number(peak["share"])),
              })
            : t("ui.web.card.glance.peakonly", { peak: binaryBytes(peak["peak"]) })}
        </p>
      )}
    </Glance>
  );
}

interface SmallCurveProps {
  series: Series[];
  format: (value: number) => string;
  /** Of the horizontal axis, with the space before it. */
  unit?: string;
  label: string;
}

function SmallCurve({ series, format, unit = "", label }: SmallCurveProps) {
  return (
    <Curve
      series={series}
      format={format}
      formatX={(value) => fixed(value, Number.isInteger(value) ? 0 : 1) + unit}
      label={label}
      height={HEIGHT}
      whole
    />
  );
}

interface SmallBar {
  name: string;
  /** ms */
  time: number;
  /** What the bar is drawn of. */
  parts: number[];
}

const wholeBar = (time: number): Omit<SmallBar, "name"> => ({ time, parts: [time] });

/** Names with their time, stacked where it has parts. */
function SmallBars({ rows, colors = ["compute"] }: { rows: SmallBar[]; colors?: string[] }) {
  const most = rows.reduce((high, row) => Math.max(high, row.time), 0) || 1;
  return (
    <ul class="small-bars">
      {rows.map(({ name, time, parts }) => (
        <li key={name}>
          <span class="ends" title={name}>
            <span>{name.slice(0, -KEPT_END)}</span>
            <span>{name.slice(-KEPT_END)}</span>
          </span>
          <span class="inline">
            {parts.map((part, i) => (
              <i key={i} class={colors[i]} style={{ width: `${(100 * part) / most}%` }} />
            ))}
          </span>
          <span>{duration(time)}</span>
        </li>
      ))}
    </ul>
  );
}

type NamedRow = Record<string, TableRows["rows"][number][number]>;

function useRows(run: string, table: string, query: Record<string, number | string>, wanted = true): NamedRow[] {
  const path = `runs/${encodeURIComponent(run)}/tables/${table}`;
  const { value } = useJson<TableRows>(wanted ? address(path, query) : null);
  const names = value?.columns.map((column) => column.name) ?? [];
  return (value?.rows ?? []).map((row) => Object.fromEntries(row.map((cell, i) => [names[i], cell])));
}
