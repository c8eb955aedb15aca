// Texts in the chosen language, through a Preact context.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Language } from "../data/document";
import { en, type Key } from "./en";
import { zh } from "./zh";

export type { Key } from "./en";
export type Text = (key: Key, values?: Record<string, string | number>) => string;

const CATALOGUES: Record<Language, Record<Key, string>> = { en, zh };

export function textIn(language: Language): Text {
  return (key, values = {}) =>
    CATALOGUES[language][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

export const LanguageContext = createContext<Text>(textIn("en"));
export const useText = (): Text => useContext(LanguageContext);
