// Collectives by class, every execution, and the arrivals of one execution.
import type { TableRows } from "../../api/types";
import { address, useJson } from "../../api/client";
import { useRunData } from "../../api/runData";
import { RankBars, type Bar } from "../../charts/RankBars";
import { Dialog } from "../../components/Dialog";
import { Pick, RankField, StepPick, TextField } from "../../components/Filters";
import { rankCell, RankLink } from "../../components/RankLink";
import { Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { duration } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import { CollectiveTable, kindName } from "../../sections/CollectiveTable";
import { CommunicationOperators } from "../../sections/CommunicationOperators";
import { LoadTables } from "./LoadTables";

export function CollectivesTab({ run }: { run: string }) {
  const t = useText();
  const { place, set } = useRouter();
  const { document, focus } = useRunData();
  const filters = Object.fromEntries(["step", "op", "rank", "q"].map((name) => [name, place.query.get(name)]));
  const ops = [
    ...new Set(
      document.tables.collectives
        .text("op")
        .filter((op): op is string => op !== null && op !== "send" && op !== "receive"),
    ),
  ];
  const execution = place.query.get("execution");
  return (
    <>
      <CollectiveTable />
      <Section id="executions" title={t("ui.web.comm.executions")} note={t("ui.web.comm.executions.note")}>
        <div class="controls">
          <StepPick all />
          <Pick
            name="op"
            label={t("ui.column.op")}
            all={t("ui.filter.all")}
            options={ops.map((op) => [op, op] as const)}
          />
          <RankField label={t("ui.column.last_rank")} />
          <TextField name="q" label={t("ui.column.name")} />
        </div>
        <ServerTable
          run={run}
          name="collectives"
          filters={filters}
          sort="-waited"
          caption={t("ui.web.comm.executions")}
          hidden={["group", "sequence"]}
          always={["name"]}
          marked={(row) => focus.ranks.has(Number(row["last_rank"]))}
          empty={t("ui.web.comm.noexecutions")}
          render={{
            kind: (row) => kindName(String(row["kind"] ?? ""), t),
            name: (row) => (
              <button
                type="button"
                class="plain linked"
                onClick={() => set({ execution: `${row["op"]}|${row["sequence"]}|${row["group"]}` }, true)}
              >
                {row["name"] ?? row["op"]}
              </button>
            ),
            last_rank: (row) => <RankLink run={run} rank={Number(row["last_rank"])} />,
          }}
        />
      </Section>
      <LoadTables run={run} name="operators">
        <CommunicationOperators />
      </LoadTables>
      {execution && (
        <CollectiveArrivals
          run={run}
          execution={execution}
          onClose={() => set({ execution: null, dsort: null, dpage: null })}
        />
      )}
    </>
  );
}

/** One collective: who came when, who waited how long. */
function CollectiveArrivals({ run, execution, onClose }: { run: string; execution: string; onClose: () => void }) {
  const t = useText();
  const { cluster } = useRunData();
  const [op, sequence, ...group] = execution.split("|");
  const named = (name: string) => {
    const at = asked.value?.columns.findIndex((column) => column.name === name) ?? -1;
    const cell = asked.value?.rows[0]?.[at] ?? null;
    return cell === null ? null : String(cell);
  };
  const filters = { op, sequence, group: group.join("|") };
  const asked = useJson<TableRows>(
    address(`runs/${encodeURIComponent(run)}/tables/arrivals`, { ...filters, limit: 500 }),
  );
  const rows = (asked.value?.rows ?? []).map((row) => row.map(Number));
  const late = asked.value?.columns.findIndex((column) => column.name === "late") ?? 0;
  const waited = asked.value?.columns.findIndex((column) => column.name === "waited") ?? 0;
  const bars = rows
    .map((row): Bar => ({ rank: row[0], up: [row[late]], down: row[waited] }))
    .sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0));
  const last = new Set(rows.length ? [rows.reduce((most, row) => (row[late] > most[late] ? row : most))[0]] : []);
  const tip = (bar: Bar) => ({
    title: t("ui.name.rank_title", { n: bar.rank }),
    lines: [
      [t("ui.column.late"), duration(bar.up[0])],
      [t("ui.column.waited"), duration(bar.down ?? 0)],
    ] as [string, string][],
  });
  const step = named("step");
  const title =
    step === null
      ? t("ui.web.comm.arrivals", { op: named("name") ?? op, n: rows.length })
      : t("ui.web.comm.arrivals.step", { op: named("name") ?? op, n: rows.length, step });
  return (
    <Dialog title={title} onClose={onClose}>
      <p class="note">{t("ui.web.comm.arrivals.note")}</p>
      {bars.length > 0 && (
        <RankBars
          bars={bars}
          colors={["waiting-deep"]}
          downColor="waiting"
          marked={last}
          tip={tip}
          label={title}
          height={180}
        />
      )}
      <ServerTable
        run={run}
        name="arrivals"
        filters={filters}
        sort="-late"
        prefix="d"
        size={10}
        caption={title}
        hidden={["name", "step"]}
        render={{ rank: rankCell(run) }}
        marked={(row) => last.has(Number(row["rank"]))}
      />
    </Dialog>
  );
}
