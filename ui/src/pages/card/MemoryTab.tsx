// Memory of one card over time, and its largest allocations.
import { useMemo } from "preact/hooks";
import { address, useColumns } from "../../api/client";
import { Curve } from "../../charts/Curve";
import { TextField } from "../../components/Filters";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { binaryBytes, fixed } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import type { CardTabProps } from "./cardInfo";
import { Legend } from "./curves";
import { memorySeries } from "./memorySeries";

export function MemoryTab({ run, card }: CardTabProps) {
  const t = useText();
  const { place } = useRouter();
  const asked = useColumns(
    card.has["memory"] ? address(`runs/${encodeURIComponent(run)}/charts/memory`, { rank: card.rank }) : null,
  );
  const series = useMemo(
    () => (asked.value ? memorySeries(asked.value.columns, t("ui.column.peak"), t) : []),
    [asked.value, t],
  );
  if (!card.has["memory"] && !card.has["rank_memory"])
    return (
      <Section id="memory" title={t("ui.web.card.tab.memory")}>
        <Empty title={t("ui.memory.empty")} text={t("ui.memory.empty.text")} />
      </Section>
    );
  if (!card.has["memory"])
    return (
      <Section
        id="memory"
        title={t("ui.web.card.memory.summary", { n: card.rank })}
        note={t("ui.web.card.memory.nocurve")}
      >
        <PeakTable run={run} rank={card.rank} />
      </Section>
    );
  const planned = asked.value?.columns.text("kind").includes("node") ?? false;
  return (
    <Section
      id="memory"
      title={t("ui.web.card.memory.title", { n: card.rank })}
      note={planned ? t("ui.memory.theoretical") : undefined}
    >
      {series.length > 0 && (
        <>
          <Curve
            series={series}
            format={binaryBytes}
            formatX={(value) => (planned ? fixed(value, 0) : `${fixed(value, value < 10 ? 2 : 0)} s`)}
            label={t("ui.web.card.tab.memory")}
          />
          <Legend series={series} />
        </>
      )}
      <PeakTable run={run} rank={card.rank} />
      <h3>{t("ui.web.card.allocations")}</h3>
      <div class="controls">
        <TextField name="q" label={t("ui.column.name")} />
      </div>
      <ServerTable
        run={run}
        name="allocations"
        filters={{ rank: card.rank, q: place.query.get("q") }}
        sort="-size"
        size={15}
        caption={t("ui.web.card.allocations")}
        empty={t("ui.web.card.allocations.empty")}
      />
    </Section>
  );
}

function PeakTable({ run, rank }: { run: string; rank: number }) {
  const t = useText();
  return (
    <ServerTable
      run={run}
      name="memory"
      filters={{ rank }}
      sort="-peak"
      prefix="m"
      caption={t("ui.memory.title")}
      hidden={["rank", "host", "device", "stage"]}
      render={{
        basis: (row) => t(row["basis"] === "theoretical" ? "ui.web.basis.theoretical" : "ui.web.basis.measured"),
      }}
    />
  );
}
