import { describe, expect, it } from "vitest";
import { webEn } from "../src/web/i18n/en";
import { webZh } from "../src/web/i18n/zh";

describe("texts of the pages", () => {
  it.each(Object.keys(webEn) as (keyof typeof webEn)[])("%s says the same in both languages", (key) => {
    const holes = (text: string): string[] => [...text.matchAll(/\{\w+\}/g)].map((match) => match[0]).sort();
    expect(holes(webZh[key])).toEqual(holes(webEn[key]));
    expect(webZh[key]).not.toBe("");
  });
});
