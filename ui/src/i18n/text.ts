// Texts in the chosen language, from the one catalogue of the whole project, through a Preact context.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import catalogue from "../../../src/paceline/core/texts/ui.json";
import type { Language } from "../api/document";

/** Keys that begin with ui.web. belong to the server's pages; the report is built without them (vite.config.ts). */
export type Key = keyof typeof catalogue;
export type Text = (key: Key, values?: Record<string, string | number>) => string;

const TEXTS: Record<Key, Record<Language, string>> = catalogue;

export function textIn(language: Language): Text {
  return (key, values = {}) =>
    TEXTS[key][language].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

export const isKey = (key: string): key is Key => key in TEXTS;

interface Localization {
  language: Language;
  text: Text;
}

export const localize = (language: Language): Localization => ({ language, text: textIn(language) });
export const LanguageContext = createContext<Localization>(localize("en"));
export const useText = (): Text => useContext(LanguageContext).text;
export const useLanguage = (): Language => useContext(LanguageContext).language;
