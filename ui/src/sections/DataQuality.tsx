// What is missing or odd in the data: said, not guessed.
import { Section } from "../components/Section";
import { ranges } from "../i18n/numbers";
import { useLanguage, useText } from "../i18n/text";
import { useRunData } from "../api/runData";

export function DataQuality({ missing }: { missing: number[] }) {
  const t = useText();
  const { document } = useRunData();
  const more = document.more_warnings;
  const warnings = useLanguage() === "zh" ? document.warnings_zh : document.warnings;
  const nothing = warnings.length === 0 && missing.length === 0;
  return (
    <Section id="data" title={t("ui.data.title")} note={nothing ? t("ui.data.none") : undefined}>
      {!nothing && (
        <ul class="warnings">
          {missing.length > 0 && <li>{t("ui.data.missing", { ranks: ranges(missing, 20) })}</li>}
          {warnings.map((warning, i) => (
            <li key={i}>{warning}</li>
          ))}
          {more > 0 && <li>{t("ui.data.more", { n: more })}</li>}
        </ul>
      )}
    </Section>
  );
}
