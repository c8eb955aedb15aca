// Host calls and hardware counters of one card.
import { useMemo } from "preact/hooks";
import { address, useColumns } from "../../api/client";
import { Curve } from "../../charts/Curve";
import { TextField } from "../../components/Filters";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { bytes, fixed } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import type { CardTabProps } from "./cardInfo";
import { byName } from "./curves";

export function HostTab({ run, card }: CardTabProps) {
  const t = useText();
  const { place } = useRouter();
  const asked = useColumns(
    card.has["counters"] ? address(`runs/${encodeURIComponent(run)}/charts/counters`, { rank: card.rank }) : null,
  );
  const counters = useMemo(
    () => (asked.value ? byName(asked.value.columns, "series", "x", "value", ["compute"]) : []),
    [asked.value],
  );
  return (
    <>
      <Section id="host" title={t("ui.web.card.host.title", { n: card.rank })}>
        {card.has["host_calls"] ? (
          <>
            <div class="controls">
              <TextField name="q" label={t("ui.column.name")} />
            </div>
            <ServerTable
              run={run}
              name="host-calls"
              filters={{ rank: card.rank, q: place.query.get("q") }}
              sort="-time"
              caption={t("ui.web.card.tab.host")}
            />
          </>
        ) : (
          <Empty title={t("ui.web.card.host.empty")} text={t("ui.web.card.host.empty.text")} />
        )}
      </Section>
      {counters.map((one, i) => (
        <Section
          key={one.name}
          id={`counter-${i}`}
          title={t("ui.web.card.counter", {
            name: unitOf(one.name) ? one.name.slice(0, one.name.lastIndexOf(" ")) : one.name,
          })}
        >
          <Curve
            series={[one]}
            format={(value) => inUnit(value, one.name)}
            formatX={(value) => `${fixed(value, value < 10 ? 2 : 0)} s`}
            label={one.name}
            height={150}
            fromZero={false}
          />
        </Section>
      ))}
    </>
  );
}

const SIZES: Record<string, number> = { B: 1, KB: 1e3, MB: 1e6, GB: 1e9 };

/** Counters carry their unit at the end of their name: "AI Core Freq MHz", "APP/HBM KB"; null where there is none. */
function unitOf(name: string): string | null {
  const unit = name.includes(" ") ? name.split(" ").at(-1)! : "";
  return unit in SIZES || /^([MG]?Hz|W|%|°C|us|ms)$/.test(unit) ? unit : null;
}

function inUnit(value: number, name: string): string {
  const unit = unitOf(name);
  if (unit !== null && unit in SIZES) return bytes(value * SIZES[unit]);
  return unit === null ? fixed(value, 0) : `${fixed(value, 0)} ${unit}`;
}
