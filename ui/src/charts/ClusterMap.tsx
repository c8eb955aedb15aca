// The cluster as racks: each host a block of cards, coloured by one number, culprits red.
import { hostName } from "../i18n/rankNames";
import { useCallback, useMemo, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "./tooltip";
import type { Cluster, Rank } from "../api/cluster";
import { useText } from "../i18n/text";
import { css, inkOn, mix, parseHex, variable } from "./color";
import { packRacks, type Cell } from "./racks";
import { useCanvas } from "./useCanvas";

interface ClusterMapProps {
  cluster: Cluster;
  /** 0..1, or null when nothing is known of the rank */
  fraction: (rank: Rank) => number | null;
  tip: (rank: Rank) => Tip;
  color: string;
  marked: ReadonlySet<number>;
  onPick: (rank: Rank) => void;
}

export function ClusterMap({ cluster, fraction, tip, color, marked, onPick }: ClusterMapProps) {
  const t = useText();
  const [cursor, setCursor] = useState<number | null>(null);
  const [width, setWidth] = useState(380);
  const racks = useMemo(() => packRacks(cluster.hosts, width), [cluster, width]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, actual: number) => {
      if (actual !== width) setWidth(actual);
      const [low, high] = [parseHex(variable("ramp-low")), parseHex(variable(color))];
      context.font = `11px ${variable("font")}`;
      context.textBaseline = "alphabetic";
      for (const rack of racks.racks) {
        context.fillStyle = variable("ink-soft");
        // Nothing is beside the label of a single host.
        const space = racks.racks.length === 1 ? actual - rack.x : rack.width;
        if (racks.labels) context.fillText(fit(context, hostName(rack.host.name, t), space), rack.x, rack.y - 5);
      }
      // A few that are missing must be seen; where most are, they must not drown the others.
      const known = racks.cells.reduce(
        (sum, cell) => sum + Number(cell.rank.recorded && fraction(cell.rank) !== null),
        0,
      );
      const [empty, red] = [
        variable(known * 2 < racks.cells.length ? "rule" : "ink-soft"),
        parseHex(variable("culprit")),
      ];
      racks.cells.forEach((cell) => {
        const value = fraction(cell.rank);
        const culprit = marked.has(cell.rank.rank);
        const fill = culprit ? red : mix(low, high, value ?? 0);
        drawCell(context, cell, racks.size, value === null || !cell.rank.recorded ? null : css(fill), empty);
        if (racks.size >= 22) drawNumber(context, cell, racks.size, inkOn(fill));
      });
      // Last, or the neighbours would cover them.
      racks.cells.forEach((cell, i) => {
        if (i === cursor) outline(context, cell, racks.size, variable("ink"));
        else if (marked.has(cell.rank.rank) && racks.size < 22) outline(context, cell, racks.size, variable("culprit"));
      });
    },
    [racks, fraction, color, marked, cursor, width, t],
  );
  const { ref } = useCanvas(draw, racks.height);
  const describe = (cell: Cell | undefined, x: number, y: number): void =>
    cell ? showTip(x, y, tip(cell.rank)) : hideTip();
  const at = (event: MouseEvent): Cell | undefined => racks.find(event.offsetX, event.offsetY);
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: racks.columns, ArrowUp: -racks.columns }[event.key];
    if (event.key === "Enter" && cursor !== null) onPick(racks.cells[cursor].rank);
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(racks.cells.length - 1, Math.max(0, (cursor ?? -step) + step));
    setCursor(next);
    const box = ref.current?.getBoundingClientRect();
    const cell = racks.cells[next];
    if (box && cell) describe(cell, box.left + cell.x + racks.size, box.top + cell.y + racks.size);
  };
  return (
    <div class="canvas">
      <canvas
        ref={ref}
        tabIndex={0}
        role="application"
        aria-label={t("ui.map.label", { n: cluster.ranks.length })}
        onMouseMove={(event) => describe(at(event), event.clientX, event.clientY)}
        onMouseLeave={hideTip}
        onBlur={() => {
          setCursor(null);
          hideTip();
        }}
        onClick={(event) => {
          const cell = at(event);
          if (cell) onPick(cell.rank);
        }}
        onKeyDown={onKeyDown}
      />
    </div>
  );
}

function drawCell(
  context: CanvasRenderingContext2D,
  cell: Cell,
  size: number,
  fill: string | null,
  empty: string,
): void {
  const inner = size - (size > 12 ? 2 : 1);
  if (fill !== null) {
    context.fillStyle = fill;
    context.fillRect(cell.x, cell.y, inner, inner);
    return;
  }
  context.strokeStyle = empty;
  context.setLineDash([2, 2]);
  context.strokeRect(cell.x + 0.5, cell.y + 0.5, inner - 1, inner - 1);
  context.setLineDash([]);
}

function drawNumber(context: CanvasRenderingContext2D, cell: Cell, size: number, ink: string): void {
  context.fillStyle = ink;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(String(cell.rank.rank), cell.x + size / 2 - 1, cell.y + size / 2);
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
}

function outline(context: CanvasRenderingContext2D, cell: Cell, size: number, color: string): void {
  context.strokeStyle = color;
  context.lineWidth = 2;
  const inner = size - (size > 12 ? 2 : 1);
  context.strokeRect(cell.x - 2, cell.y - 2, inner + 4, inner + 4);
  context.lineWidth = 1;
}

function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let kept = text.length;
  while (kept > 1 && context.measureText(`…${text.slice(-kept)}`).width > width) kept--;
  return `…${text.slice(-kept)}`;
}
