// What every view is given: the document, the cluster, and what the chosen finding marks.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Cluster, Share } from "../data/cluster";
import type { ReportDocument } from "../data/document";
import type { Focus } from "../data/focus";

export interface Scene {
  document: ReportDocument;
  cluster: Cluster;
  shares: Share[];
  focus: Focus;
}

export const SceneContext = createContext<Scene | null>(null);

export function useScene(): Scene {
  const scene = useContext(SceneContext);
  if (!scene) throw new Error("a view stands outside its scene");
  return scene;
}
