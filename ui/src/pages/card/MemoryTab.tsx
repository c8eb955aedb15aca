// Memory of one card over time, and its largest allocations.
import { useMemo } from "preact/hooks";
import { address, useColumns } from "../../api/client";
import { Columns } from "../../api/columns";
import { Curve, type Series } from "../../charts/Curve";
import { TextField } from "../../components/Filters";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { bytes, fixed } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import type { CardTabProps } from "./cardInfo";
import { byName, Legend } from "./curves";

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
  if (!card.has["memory"])
    return (
      <Section id="memory" title={t("ui.web.card.tab.memory")}>
        <Empty title={t("ui.memory.empty")} text={t("ui.memory.empty.text")} />
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
            format={bytes}
            formatX={(value) => (planned ? fixed(value, 0) : `${fixed(value, value < 10 ? 2 : 0)} s`)}
            label={t("ui.web.card.tab.memory")}
          />
          <Legend series={series} />
        </>
      )}
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

const MEMORY_COLORS = ["compute", "exposed", "overlapped", "data"];

function memorySeries(table: Columns, peak: string, t: ReturnType<typeof useText>): Series[] {
  const allocated = byName(table, "series", "x", "allocated", MEMORY_COLORS);
  const reserved = byName(table, "series", "x", "reserved", MEMORY_COLORS);
  return allocated.flatMap((one, i): Series[] => {
    const label = one.name ? `${one.name} ${t("ui.web.card.allocated")}` : peak;
    const held = reserved[i];
    const more =
      held && held.y.some(Number.isFinite)
        ? [{ ...held, name: `${one.name} ${t("ui.web.card.reserved")}`, dashed: true, steps: true }]
        : [];
    return [{ ...one, name: label, steps: true }, ...more].filter((some) => some.y.some(Number.isFinite));
  });
}
