// Colours and language, at the end of the bar of every page.
import { useText, type Key } from "../i18n/text";
import type { Theme } from "../style/theme";

export function Switches({ theme, onLanguage }: { theme: Theme; onLanguage: () => void }) {
  const t = useText();
  const name = t(`ui.theme.${theme.choice}` as Key);
  return (
    <>
      <button type="button" id="theme" onClick={theme.next} aria-label={t("ui.theme.label", { theme: name })}>
        <span aria-hidden="true">◐ </span>
        {name}
      </button>
      <button type="button" id="language" onClick={onLanguage} aria-label={t("ui.language.label")}>
        {t("ui.language.switch")}
      </button>
    </>
  );
}
