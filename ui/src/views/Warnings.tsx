// What is missing or odd in the data: said, not guessed.
import { Section } from "../components/Section";
import { ranges } from "../format/numbers";
import { useText } from "../i18n/text";
import { useScene } from "./context";

export function Warnings({ missing }: { missing: number[] }) {
  const t = useText();
  const { warnings, moreWarnings } = useScene().document;
  const nothing = warnings.length === 0 && missing.length === 0;
  return (
    <Section id="data" title={t("data.title")} note={nothing ? t("data.none") : undefined}>
      {!nothing && (
        <ul class="warnings">
          {missing.length > 0 && <li>{t("data.missing", { ranks: ranges(missing, 20) })}</li>}
          {warnings.map((warning, i) => <li key={i}>{warning}</li>)}
          {moreWarnings > 0 && <li>{t("data.more", { n: moreWarnings })}</li>}
        </ul>
      )}
    </Section>
  );
}
