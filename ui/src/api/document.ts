// The document inside a report: the public diagnosis JSON in each language, and the tables of the views.

import type { Diagnosis, Evidence, Finding, Gain, RunFacts, ServedReport, Subject } from "./types";
import { Columns, type PackedTable } from "./columns";

export type { Diagnosis, Evidence, Finding, Gain, RunFacts, Subject };
export type Language = ServedReport["language"];
export type Severity = Finding["severity"];

/** The JSON as it is written into a report; the server adds two fields that no view needs. */
export type PackedReport = Omit<ServedReport, "run" | "undiagnosed">;

/** The same with its tables unpacked. */
export type ReportDocument = Omit<PackedReport, "schema" | "tables"> & { tables: Record<TableName, Columns> };

const TABLES = [
  "ranks",
  "breakdown",
  "host_breakdown",
  "cluster_breakdown",
  "steps",
  "memory",
  "collectives",
  "arrivals",
  "operators",
  "operator_times",
  "operator_links",
  "operator_transports",
  "operator_packets",
  "transports",
  "links",
  "host_links",
  "packets",
] as const;
export type TableName = (typeof TABLES)[number];

export function readDocument(packed: PackedReport): ReportDocument {
  const tables = Object.fromEntries(TABLES.map((name) => [name, new Columns(packed.tables[name])]));
  return { ...packed, tables: tables as Record<TableName, Columns> };
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
