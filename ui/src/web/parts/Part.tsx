// Tables of the report that one view needs, asked for when it is shown: the first view of ten thousand ranks stays light.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { PackedTable } from "../../data/columns";
import { withTables } from "../../data/document";
import { SceneContext, useScene } from "../../views/context";
import { address, useJson } from "../api";
import { useWords } from "../words";
import { Busy, Trouble } from "./Trouble";

interface PartProps {
  run: string;
  name: "arrivals" | "operators";
  children: ComponentChildren;
}

export function Part({ run, name, children }: PartProps) {
  const w = useWords();
  const scene = useScene();
  const asked = useJson<{ tables: Record<string, PackedTable> }>(address(`runs/${encodeURIComponent(run)}/overview/${name}`));
  const document = useMemo(
    () => (asked.value ? withTables(scene.document, asked.value.tables) : null),
    [asked.value, scene.document],
  );
  if (asked.problem) return <Trouble problem={asked.problem} />;
  if (!document) return <Busy text={w("asking")} />;
  return <SceneContext.Provider value={{ ...scene, document }}>{children}</SceneContext.Provider>;
}
