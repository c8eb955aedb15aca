// The document inside a report: the public diagnosis JSON in each language, and the tables of the views.

import { Columns, type PackedTable } from "./columns";

export type Language = "en" | "zh";
export type Severity = "high" | "medium" | "low" | "info";

export interface Link {
  src: number;
  dst: number;
  transport?: string;
}

export interface Subject {
  ranks: number[];
  hosts: string[];
  links: Link[];
  operators: string[];
  stages: number[];
  steps: number[];
}

export interface Evidence {
  metric: string;
  value: number | string | null;
  peers?: number | string | null;
  unit?: string;
}

export interface Gain {
  step_ms_now: number;
  step_ms_fixed: number;
  percent: number;
}

export interface Finding {
  id: string;
  severity: Severity;
  confidence: number | null;
  chronic: boolean | null;
  subject: Subject;
  gain: Gain | null;
  title: string;
  evidence: Evidence[];
  advice: string[];
  /** "kb/slow-rank" where the knowledge base explains it, "own/…" for a rule of the user's own. */
  see: string;
}

export interface RunFacts {
  source: string;
  formats: string[];
  ranks: number;
  hosts: number;
  steps: number[];
  stepMs: number | null;
  missingRanks: number[];
}

export interface Diagnosis {
  run: RunFacts;
  findings: Finding[];
}

export interface ReportDocument {
  version: string;
  written: string;
  language: Language;
  source: string;
  formats: string[];
  layout: Record<string, number>;
  hosts: string[];
  nominal: Record<string, number>;
  warnings: string[];
  moreWarnings: number;
  allLinks: number;
  unplacedLinks: number;
  diagnoses: Partial<Record<Language, Diagnosis>>;
  tables: Record<TableName, Columns>;
}

const TABLES = [
  "ranks", "breakdown", "steps", "memory", "collectives", "arrivals", "operators", "operator_times", "transports",
  "links", "host_links", "packets",
] as const;
export type TableName = (typeof TABLES)[number];

export type Json = Record<string, unknown>;

/** Reads what html.py wrote; a field that is missing becomes empty rather than an error. */
export function readDocument(raw: Json): ReportDocument {
  const packed = object(raw["tables"]) as Record<string, PackedTable>;
  const diagnoses: Partial<Record<Language, Diagnosis>> = {};
  for (const [language, diagnosis] of Object.entries(object(raw["diagnoses"]))) {
    diagnoses[language as Language] = readDiagnosis(object(diagnosis));
  }
  return {
    version: string(raw["version"]),
    written: string(raw["written"]),
    language: raw["language"] === "zh" ? "zh" : "en",
    source: string(raw["source"]),
    formats: list<string>(raw["formats"]),
    layout: object(raw["layout"]) as Record<string, number>,
    hosts: list<string>(raw["hosts"]),
    nominal: object(raw["nominal"]) as Record<string, number>,
    warnings: list<string>(raw["warnings"]),
    moreWarnings: number(raw["more_warnings"]) ?? 0,
    allLinks: number(raw["all_links"]) ?? 0,
    unplacedLinks: number(raw["unplaced_links"]) ?? 0,
    diagnoses,
    tables: Object.fromEntries(TABLES.map((name) => [name, new Columns(packed[name])])) as Record<TableName, Columns>,
  };
}

/** The same document with tables that came later. */
export function withTables(document: ReportDocument, packed: Record<string, PackedTable>): ReportDocument {
  const more = Object.fromEntries(Object.entries(packed).map(([name, table]) => [name, new Columns(table)]));
  return { ...document, tables: { ...document.tables, ...more } };
}

/** The findings in the language asked for, or in the one there is. */
export function diagnosisIn(document: ReportDocument, language: Language): Diagnosis | null {
  return document.diagnoses[language] ?? Object.values(document.diagnoses)[0] ?? null;
}

function readDiagnosis(raw: Json): Diagnosis {
  const run = object(raw["run"]);
  return {
    run: {
      source: string(run["source"]),
      formats: list<string>(run["formats"]),
      ranks: number(run["ranks"]) ?? 0,
      hosts: number(run["hosts"]) ?? 0,
      steps: list<number>(run["steps"]),
      stepMs: number(object(run["step_ms"])["median"]),
      missingRanks: list<number>(run["missing_ranks"]),
    },
    findings: list<Json>(raw["findings"]).map(readFinding),
  };
}

function readFinding(raw: Json): Finding {
  const subject = object(raw["subject"]);
  const gain = object(raw["gain"]);
  const now = number(gain["step_ms_now"]);
  const fixed = number(gain["step_ms_fixed"]);
  return {
    id: string(raw["id"]),
    severity: (string(raw["severity"]) || "info") as Severity,
    confidence: number(raw["confidence"]),
    chronic: typeof raw["chronic"] === "boolean" ? raw["chronic"] : null,
    subject: {
      ranks: list<number>(subject["ranks"]),
      hosts: list<string>(subject["hosts"]),
      links: list<Link>(subject["links"]),
      operators: list<string>(subject["operators"]),
      stages: list<number>(subject["stages"]),
      steps: list<number>(subject["steps"]),
    },
    gain: now !== null && fixed !== null ? { step_ms_now: now, step_ms_fixed: fixed, percent: number(gain["percent"]) ?? 0 } : null,
    title: string(raw["title"]),
    evidence: list<Evidence>(raw["evidence"]),
    advice: list<string>(raw["advice"]),
    see: string(raw["see"]),
  };
}

const object = (value: unknown): Json =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Json) : {};
const list = <T>(value: unknown): T[] => (Array.isArray(value) ? (value as T[]) : []);
const string = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
