// What every view is given: the document, the cluster, and what the chosen finding marks.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Cluster, Share } from "./cluster";
import type { ReportDocument } from "./document";
import type { Focus } from "./focus";

export interface RunData {
  document: ReportDocument;
  cluster: Cluster;
  shares: Share[];
  focus: Focus;
}

export const RunDataContext = createContext<RunData | null>(null);

export function useRunData(): RunData {
  const runData = useContext(RunDataContext);
  if (!runData) throw new Error("a view stands outside its runData");
  return runData;
}
