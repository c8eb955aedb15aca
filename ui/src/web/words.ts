// Texts of the server's pages, beside those the report shares with them.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Language } from "../data/document";
import { webEn, type WebKey } from "./i18n/en";
import { webZh } from "./i18n/zh";

export type { WebKey } from "./i18n/en";
export type Words = (key: WebKey, values?: Record<string, string | number>) => string;

const CATALOGUES: Record<Language, Record<WebKey, string>> = { en: webEn, zh: webZh };

export function wordsIn(language: Language): Words {
  return (key, values = {}) =>
    CATALOGUES[language][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

interface Speech {
  language: Language;
  w: Words;
}

export const SpeechContext = createContext<Speech>({ language: "en", w: wordsIn("en") });
export const useWords = (): Words => useContext(SpeechContext).w;
export const useLanguage = (): Language => useContext(SpeechContext).language;
export const isWebKey = (key: string): key is WebKey => key in webEn;
