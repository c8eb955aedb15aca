// The input pipeline of one card: its operators and queues.
import { useMemo } from "preact/hooks";
import { address, useColumns } from "../../api/client";
import { Curve } from "../../charts/Curve";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { fixed } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import type { CardTabProps } from "./cardInfo";
import { byName, Legend } from "./curves";

export function InputTab({ run, card }: CardTabProps) {
  const t = useText();
  const asked = useColumns(
    card.has["input_steps"] ? address(`runs/${encodeURIComponent(run)}/charts/input`, { rank: card.rank }) : null,
  );
  const series = useMemo(
    () => (asked.value ? byName(asked.value.columns, "queue", "step", "size", ["data", "compute", "exposed"]) : []),
    [asked.value],
  );
  if (!card.has["input_pipeline"] && !card.has["input_steps"]) {
    return (
      <Section id="input" title={t("ui.web.card.tab.input")}>
        <Empty title={t("ui.web.card.input.empty")} text={t("ui.web.card.input.empty.text")} />
      </Section>
    );
  }
  return (
    <Section id="input" title={t("ui.web.card.input.title", { n: card.rank })} note={t("ui.web.card.input.note")}>
      {series.some((one) => one.x.length > 1) && (
        <>
          <h3>{t("ui.web.card.queue")}</h3>
          <Curve
            series={series}
            format={(value) => fixed(value, Number.isInteger(value) ? 0 : 1)}
            formatX={(value) => fixed(value, 0)}
            label={t("ui.web.card.queue")}
            height={170}
            whole
          />
          <Legend series={series} />
        </>
      )}
      {Boolean(card.has["input_pipeline"]) && (
        <ServerTable
          run={run}
          name="input-pipeline"
          filters={{ rank: card.rank }}
          sort="op_id"
          caption={t("ui.web.card.tab.input")}
        />
      )}
    </Section>
  );
}
