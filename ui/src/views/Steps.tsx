// Step by step: a habit or a one-off.
import { StepChart } from "../charts/StepChart";
import { Empty, Section } from "../components/Section";
import { duration } from "../format/numbers";
import { useText } from "../i18n/text";
import { useScene } from "./context";

export function Steps() {
  const t = useText();
  const { document, focus } = useScene();
  const steps = document.tables.steps;
  return (
    <Section id="steps" title={t("steps.title")}>
      {steps.length === 0 && <Empty title={t("steps.empty")} text={t("steps.empty.text")} />}
      {steps.length === 1 && (
        <Empty title={t("steps.one", { ms: duration(steps.num("step_median")[0]) })} text={t("steps.one.text")} />
      )}
      {steps.length > 1 && (
        <>
          <StepChart steps={steps} ranks={focus.ranks} marked={focus.steps} />
          <ul class="legend">
            <li><i class="line step" />{t("steps.step")}</li>
            <li><i class="band" />{t("steps.band")}</li>
            <li><i class="line compute" />{t("steps.compute")}</li>
            <li><i class="line slowest" />{t("steps.slowest")}</li>
          </ul>
        </>
      )}
    </Section>
  );
}
