// Step by step: persistent or one-off.
import { StepChart } from "../charts/StepChart";
import { Empty, Section } from "../components/Section";
import { duration } from "../i18n/numbers";
import { useText } from "../i18n/text";
import { useRunData } from "../api/runData";

export function StepsOverTime() {
  const t = useText();
  const { document, focus } = useRunData();
  const steps = document.tables.steps;
  return (
    <Section id="steps" title={t("ui.steps.title")}>
      {steps.length === 0 && <Empty title={t("ui.steps.empty")} text={t("ui.steps.empty.text")} />}
      {steps.length === 1 && (
        <Empty title={t("ui.steps.one", { ms: duration(steps.num("step_median")[0]) })} text={t("ui.steps.one.text")} />
      )}
      {steps.length > 1 && (
        <>
          <StepChart steps={steps} ranks={focus.ranks} marked={focus.steps} />
          <ul class="legend">
            <li>
              <i class="line step" />
              {t("ui.steps.step")}
            </li>
            <li>
              <i class="band" />
              {t("ui.steps.band")}
            </li>
            <li>
              <i class="line compute" />
              {t("ui.steps.compute")}
            </li>
            <li>
              <i class="line slowest" />
              {t("ui.steps.slowest")}
            </li>
          </ul>
        </>
      )}
    </Section>
  );
}
