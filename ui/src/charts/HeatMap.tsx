// Columns × rows of values as an image: a thousand ranks side by side, step under step.
import { useCallback, useContext, useMemo, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "./tooltip";
import { variable } from "./color";
import { cellImage } from "./pixels";
import { ThemeContext, timed, useCanvas } from "./useCanvas";

interface HeatMapProps {
  /** Row after row, 0..1 on the colour scale, NaN unknown. */
  values: Float32Array;
  columns: number;
  rows: number;
  /** Columns where a host begins. */
  boundaries: number[];
  columnLabel: (column: number) => string;
  rowLabel: (row: number) => string;
  marked: ReadonlySet<number>;
  tip: (column: number, row: number) => Tip;
  label: string;
  onPick: (column: number, row: number) => void;
}

const LEFT = 66;
const BOTTOM = 22;

export function HeatMap({
  values,
  columns,
  rows,
  boundaries,
  columnLabel,
  rowLabel,
  marked,
  tip,
  label,
  onPick,
}: HeatMapProps) {
  const theme = useContext(ThemeContext);
  const [cursor, setCursor] = useState<{ column: number; row: number } | null>(null);
  const image = useMemo(
    () => timed("cells", () => cellImage(values, columns, rows, "compute")),
    [values, columns, rows, theme],
  );
  const tall = Math.min(22, Math.max(5, Math.round(260 / Math.max(1, rows)))) * rows;
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      const slot = (width - LEFT) / columns;
      const high = tall / rows;
      context.imageSmoothingEnabled = false;
      context.fillStyle = variable("plot");
      context.fillRect(LEFT, 0, width - LEFT, tall);
      context.drawImage(image, LEFT, 0, width - LEFT, tall);
      context.strokeStyle = variable("paper");
      for (const at of boundaries)
        if (at > 0 && (columns / boundaries.length) * slot > 12) line(context, LEFT + at * slot, tall);
      context.font = `11px ${variable("font")}`;
      context.textBaseline = "middle";
      drawRows(context, { rows, high, rowLabel });
      drawColumns(context, { columns, slot, width, tall, columnLabel, marked });
      if (cursor) {
        context.strokeStyle = variable("ink");
        context.lineWidth = 2;
        context.strokeRect(LEFT + cursor.column * slot - 1, cursor.row * high - 1, Math.max(4, slot) + 2, high + 2);
      }
    },
    [image, columns, rows, boundaries, columnLabel, rowLabel, marked, cursor, tall],
  );
  const { ref, width } = useCanvas(draw, tall + BOTTOM);
  const at = (x: number, y: number): { column: number; row: number } | null => {
    const column = Math.floor(((x - LEFT) / (width - LEFT)) * columns);
    const row = Math.floor((y / tall) * rows);
    return column >= 0 && column < columns && row >= 0 && row < rows ? { column, row } : null;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (event.key === "Enter" && cursor) onPick(cursor.column, cursor.row);
    if (!step) return;
    event.preventDefault();
    const next = cursor
      ? {
          column: Math.min(columns - 1, Math.max(0, cursor.column + step[0])),
          row: Math.min(rows - 1, Math.max(0, cursor.row + step[1])),
        }
      : { column: 0, row: 0 };
    setCursor(next);
    const box = ref.current?.getBoundingClientRect();
    if (box)
      showTip(
        box.left + LEFT + ((next.column + 0.5) / columns) * (width - LEFT),
        box.top + ((next.row + 0.5) / rows) * tall,
        tip(next.column, next.row),
      );
  };
  return (
    <div class="canvas">
      <canvas
        ref={ref}
        tabIndex={0}
        role="application"
        aria-label={label}
        data-pick=""
        onMouseMove={(event) => {
          const cell = at(event.offsetX, event.offsetY);
          if (cell) showTip(event.clientX, event.clientY, tip(cell.column, cell.row));
          else hideTip();
        }}
        onMouseLeave={hideTip}
        onBlur={() => {
          setCursor(null);
          hideTip();
        }}
        onClick={(event) => {
          const cell = at(event.offsetX, event.offsetY);
          if (cell) onPick(cell.column, cell.row);
        }}
        onKeyDown={onKeyDown}
      />
    </div>
  );
}

function line(context: CanvasRenderingContext2D, x: number, tall: number): void {
  context.beginPath();
  context.moveTo(Math.round(x) - 0.5, 0);
  context.lineTo(Math.round(x) - 0.5, tall);
  context.stroke();
}

function drawRows(
  context: CanvasRenderingContext2D,
  { rows, high, rowLabel }: { rows: number; high: number; rowLabel: (row: number) => string },
): void {
  context.textAlign = "right";
  context.fillStyle = variable("ink-soft");
  const every = Math.max(1, Math.ceil(13 / high));
  for (let row = 0; row < rows; row += every)
    context.fillText(rowLabel(row), LEFT - 8, Math.max(6, (row + 0.5) * high), LEFT - 8);
}

interface ColumnFrame {
  columns: number;
  slot: number;
  width: number;
  tall: number;
  columnLabel: (column: number) => string;
  marked: ReadonlySet<number>;
}

function drawColumns(
  context: CanvasRenderingContext2D,
  { columns, slot, width, tall, columnLabel, marked }: ColumnFrame,
): void {
  const widest = context.measureText(columnLabel(columns - 1)).width + 12;
  let every = 1;
  while (slot > 0 && every * slot < widest) every *= 2;
  context.textAlign = "center";
  const red = [...marked].slice(0, 12);
  const center = (column: number): number => LEFT + (column + 0.5) * slot;
  for (let column = 0; column < columns; column += every) {
    if (red.some((other) => Math.abs(center(other) - center(column)) < widest) || center(column) + widest / 2 > width)
      continue;
    context.fillStyle = variable("ink-soft");
    context.fillText(columnLabel(column), center(column), tall + BOTTOM / 2);
  }
  context.fillStyle = variable("culprit");
  context.font = `bold 11px ${variable("font")}`;
  for (const column of red) {
    context.fillText(columnLabel(column), center(column), tall + BOTTOM / 2);
    context.fillRect(LEFT + column * slot, tall, Math.max(3, slot), 3);
  }
}
