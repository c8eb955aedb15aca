// Sender × receiver on a canvas: thousands of links, zoomable, each cell at least two pixels so that none disappears.
import { useCallback, useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "../components/tooltip";
import { useText } from "../i18n/text";
import { variable } from "./color";
import { drawAxes, LEFT, rightOf, topOf, type Axis } from "./matrixAxes";
import { drawCells, type Frame } from "./matrixCells";
import { ThemeContext, useCanvas } from "./useCanvas";
import { around, move, whole, zoom, type Viewport } from "./viewport";

export interface MatrixCell {
  row: number;
  column: number;
  /** 0..1 on the colour scale, NaN when unknown */
  fraction: number;
  marked: boolean;
  /** Carries so little that its speed says nothing: drawn small. */
  small: boolean;
}

interface MatrixProps<Cell extends MatrixCell> {
  axis: Axis;
  cells: Cell[];
  tip: (cell: Cell) => Tip;
  label: string;
  /** The cell to show close up, when someone asked for it. */
  target: { row: number; column: number } | null;
}

/** Few ranks must not become tiles the size of a hand. */
const WIDEST_CELL = 72;

export function Matrix<Cell extends MatrixCell>({ axis, cells, tip, label, target }: MatrixProps<Cell>) {
  const t = useText();
  const count = axis.count;
  const top = topOf(axis);
  const [view, setView] = useState<Viewport>(() => whole(count));
  const [cursor, setCursor] = useState<{ row: number; column: number } | null>(null);
  const theme = useContext(ThemeContext);
  const drag = useRef<{ x: number; y: number; view: Viewport } | null>(null);
  const index = useMemo(() => new Map(cells.map((cell) => [cell.row * count + cell.column, cell])), [cells, count]);
  useEffect(() => setView(target && count > 48 ? around(target, count, 32) : whole(count)), [target, count]);

  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, height: number) => {
      const size = Math.min(width - LEFT - rightOf(axis), height - top);
      const cell = size / view.span;
      context.fillStyle = variable("plot");
      context.fillRect(LEFT, top, size, size);
      context.save();
      context.beginPath();
      context.rect(LEFT, top, size, size);
      context.clip();
      drawCells(context, cells, { view, cell, top, size }, theme);
      context.restore();
      drawAxes(context, { axis, view, size, marked: cells.filter((one) => one.marked), words: [t("links.sender"), t("links.receiver")] });
      context.save();
      context.beginPath();
      context.rect(LEFT - 3, top - 3, size + 6, size + 6);
      context.clip();
      for (const one of cells) if (one.marked) ring(context, one, { view, cell, top, size }, variable("culprit"));
      if (cursor) ring(context, cursor, { view, cell, top, size }, variable("ink"));
      context.restore();
    },
    [axis, cells, view, cursor, top, theme, t],
  );
  const { ref, width, height } = useCanvas(draw, (wide) => wide - LEFT - rightOf(axis) + top + 2);
  const size = Math.max(1, Math.min(width - LEFT - rightOf(axis), height - top));

  const under = (x: number, y: number) => ({
    column: view.column + ((x - LEFT) / size) * view.span,
    row: view.row + ((y - top) / size) * view.span,
  });
  const cellAt = (x: number, y: number): Cell | undefined => {
    if (x < LEFT || y < top) return undefined;
    const { row, column } = under(x, y);
    return nearest(index, { row, column, count, reach: Math.max(0, Math.ceil((2 * view.span) / size) - 1) });
  };
  const zoomBy = (factor: number): void =>
    setView((old) => zoom(old, count, factor, cursor ?? { column: old.column + old.span / 2, row: old.row + old.span / 2 }));

  // Wheel with Ctrl only: a page must scroll past its charts. Added by hand because Preact's handler would be passive.
  useEffect(() => {
    const canvas = ref.current;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      setView((old) => zoom(old, count, event.deltaY > 0 ? 1.25 : 0.8, under(event.offsetX, event.offsetY)));
    };
    canvas?.addEventListener("wheel", onWheel, { passive: false });
    return () => canvas?.removeEventListener("wheel", onWheel);
  });

  const onMove = (event: PointerEvent): void => {
    const start = drag.current;
    if (start) {
      const perPixel = start.view.span / size;
      setView(move(start.view, count, (start.x - event.clientX) * perPixel, (start.y - event.clientY) * perPixel));
      hideTip();
      return;
    }
    const cell = cellAt(event.offsetX, event.offsetY);
    if (cell) showTip(event.clientX, event.clientY, tip(cell));
    else hideTip();
  };
  const step = (rows: number, columns: number): void => {
    const next = nextCell(cells, cursor ?? { row: -1, column: -1 }, rows, columns);
    if (!next) return;
    setCursor(next);
    setView((old) => (isVisible(next, old) ? old : around(next, count, old.span)));
    const box = ref.current?.getBoundingClientRect();
    if (box) showTip(box.left + LEFT, box.top + top, tip(next));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const actions: Record<string, () => void> = {
      ArrowRight: () => step(0, 1), ArrowLeft: () => step(0, -1), ArrowDown: () => step(1, 0), ArrowUp: () => step(-1, 0),
      "+": () => zoomBy(0.6), "=": () => zoomBy(0.6), "-": () => zoomBy(1.6), "0": () => setView(whole(count)),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  };
  return (
    <div class="matrix">
      <div class="zoom">
        <button type="button" aria-label={t("links.zoomin")} title={t("links.zoomin")} onClick={() => zoomBy(0.6)}>+</button>
        <button type="button" aria-label={t("links.zoomout")} title={t("links.zoomout")} onClick={() => zoomBy(1.6)}>−</button>
        <button type="button" onClick={() => setView(whole(count))} disabled={view.span >= count}>{t("links.reset")}</button>
      </div>
      <div class="canvas" style={{ maxWidth: `${LEFT + rightOf(axis) + count * WIDEST_CELL}px` }}>
        <canvas
          ref={ref}
          tabIndex={0}
          role="application"
          aria-label={label}
          onPointerDown={(event) => {
            drag.current = { x: event.clientX, y: event.clientY, view };
            event.currentTarget.setPointerCapture(event.pointerId);
          }}
          onPointerUp={() => { drag.current = null; }}
          onPointerCancel={() => { drag.current = null; }}
          onPointerMove={onMove}
          onPointerLeave={hideTip}
          onDblClick={(event) => setView((old) => zoom(old, count, 0.4, under(event.offsetX, event.offsetY)))}
          onBlur={() => { setCursor(null); hideTip(); }}
          onKeyDown={onKeyDown}
        />
      </div>
    </div>
  );
}

function ring(
  context: CanvasRenderingContext2D, at: { row: number; column: number }, { view, cell, top }: Frame, color: string,
): void {
  const side = Math.max(9, cell + 2);
  context.strokeStyle = color;
  context.lineWidth = 2.5;
  const x = LEFT + (at.column - view.column + 0.5) * cell;
  const y = top + (at.row - view.row + 0.5) * cell;
  context.strokeRect(x - side / 2, y - side / 2, side, side);
  context.lineWidth = 1;
}

interface Spot {
  row: number;
  column: number;
  count: number;
  reach: number;
}

/** The cell under the pointer, or the closest one it could mean when cells are smaller than pixels. */
function nearest<Cell>(index: Map<number, Cell>, { row, column, count, reach }: Spot): Cell | undefined {
  const [r, c] = [Math.floor(row), Math.floor(column)];
  for (let away = 0; away <= Math.min(reach, 6); away++) {
    for (let i = -away; i <= away; i++) {
      for (let j = -away; j <= away; j++) {
        if (c + j < 0 || c + j >= count) continue;
        const cell = index.get((r + i) * count + c + j);
        if (cell) return cell;
      }
    }
  }
  return undefined;
}

/** The next cell there is in a direction: along the row, or in the next row that has one. */
function nextCell<Cell extends MatrixCell>(
  cells: Cell[], from: { row: number; column: number }, rows: number, columns: number,
): Cell | undefined {
  const ahead = cells.filter((cell) =>
    columns !== 0
      ? (cell.row - from.row || cell.column - from.column) * columns > 0
      : (cell.row - from.row) * rows > 0,
  );
  const distance = (cell: Cell): number => Math.abs(cell.row - from.row) * 1e6 + Math.abs(cell.column - from.column);
  return ahead.reduce<Cell | undefined>((best, cell) => (!best || distance(cell) < distance(best) ? cell : best), undefined);
}

function isVisible(cell: { row: number; column: number }, view: Viewport): boolean {
  return (
    cell.row >= view.row && cell.row < view.row + view.span && cell.column >= view.column && cell.column < view.column + view.span
  );
}
