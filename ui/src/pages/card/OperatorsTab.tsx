// The operators of one card against the reference of its peers, and their FLOPs.
import { Choice } from "../../components/Choice";
import { TextField } from "../../components/Filters";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter, useSetting } from "../../components/router";
import { useText } from "../../i18n/text";
import type { CardTabProps } from "./cardInfo";

export function OperatorsTab({ run, card }: CardTabProps) {
  const t = useText();
  const { place } = useRouter();
  const [level, setLevel] = useSetting("level", "type");
  const nothing = !card.has["operator_times"];
  return (
    <>
      <Section
        id="operators"
        title={t("ui.web.card.operators.title", { n: card.rank })}
        note={nothing ? undefined : t("ui.web.card.operators.note")}
      >
        {nothing ? (
          <Empty title={t("ui.web.card.operators.empty")} text={t("ui.web.card.operators.empty.text")} />
        ) : (
          <>
            <div class="controls">
              <Choice
                label={t("ui.web.card.level")}
                value={level}
                onChange={setLevel}
                options={[
                  { value: "type", label: t("ui.web.card.bytype") },
                  { value: "name", label: t("ui.web.card.byname") },
                ]}
              />
              <TextField name="q" label={t("ui.column.name")} />
            </div>
            <ServerTable
              run={run}
              name="operators"
              filters={{ rank: card.rank, level: level === "name" ? "name" : null, q: place.query.get("q") }}
              sort="-time"
              caption={t("ui.web.card.tab.operators")}
              hidden={level === "name" ? [] : ["name"]}
              marked={(row) => typeof row["excess"] === "number" && row["excess"] > 0.1 && Number(row["share"]) > 0.02}
            />
          </>
        )}
      </Section>
      <Section
        id="flops"
        title={t("ui.web.card.flops")}
        note={card.has["flops_counted"] ? t("ui.web.card.flops.counted") : undefined}
      >
        {card.has["flops"] ? (
          <ServerTable
            run={run}
            name="operator-flops"
            filters={{ rank: card.rank, q: place.query.get("q") }}
            sort="-flops"
            prefix="f"
            size={15}
            caption={t("ui.web.card.flops")}
          />
        ) : (
          <Empty title={t("ui.web.flops.empty")} text={t("ui.web.flops.empty.text")} />
        )}
      </Section>
    </>
  );
}
