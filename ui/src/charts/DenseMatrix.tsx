// Sender × receiver from typed arrays: a million links drawn as one image, zoomed by scaling it.
import { useCallback, useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "../components/tooltip";
import { useText } from "../i18n/text";
import { variable } from "./color";
import { drawAxes, LEFT, rightOf, topOf, type Axis } from "./matrixAxes";
import { cellImage } from "./pixels";
import { ThemeContext, timed, useCanvas } from "./useCanvas";
import { around, move, whole, zoom, type Viewport } from "./viewport";

export interface Spot {
  row: number;
  column: number;
}

interface DenseMatrixProps {
  axis: Axis;
  /** count × count, row after row: 0..1 on the colour scale, NaN where there is no link. */
  values: Float32Array;
  marked: Spot[];
  target: Spot | null;
  tip: (spot: Spot) => Tip | null;
  label: string;
  onPick: (spot: Spot) => void;
}

const WIDEST_CELL = 60;
const WIDEST = 900;
/** Few links among this many ranks would be lines of single pixels: they are drawn thicker. */
const FEW = 0.03;
const THIN = 256;
/** A link must not vanish between pixels: small cells are looked for this many pixels around. */
const REACH = 3;

export function DenseMatrix({ axis, values, marked, target, tip, label, onPick }: DenseMatrixProps) {
  const t = useText();
  const theme = useContext(ThemeContext);
  const count = axis.count;
  const top = topOf(axis);
  const [view, setView] = useState<Viewport>(() => whole(count));
  const [cursor, setCursor] = useState<Spot | null>(null);
  const drag = useRef<{ x: number; y: number; view: Viewport; moved: boolean } | null>(null);
  const few = useMemo(() => values.reduce((known, value) => known + (value === value ? 1 : 0), 0) < FEW * values.length, [values]);
  const thin = few && view.span > THIN;
  const image = useMemo(() => timed("cells", () => cellImage(values, count, count, theme, thin)), [values, count, theme, thin]);
  useEffect(() => setView(target && count > 48 ? around(target, count, 32) : whole(count)), [target, count]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, height: number) => {
      const size = Math.min(width - LEFT - rightOf(axis), height - top);
      context.fillStyle = variable("plot");
      context.fillRect(LEFT, top, size, size);
      context.save();
      context.beginPath();
      context.rect(LEFT, top, size, size);
      context.clip();
      // Cells smaller than a pixel are averaged, so that every link leaves a trace; larger ones stay sharp.
      context.imageSmoothingEnabled = view.span > size;
      context.imageSmoothingQuality = "high";
      context.drawImage(image, view.column, view.row, view.span, view.span, LEFT, top, size, size);
      context.restore();
      const cells = marked.map((spot) => ({ ...spot, fraction: 0, marked: true, small: false }));
      drawAxes(context, { axis, view, size, marked: cells, words: [t("links.sender"), t("links.receiver")] });
      for (const spot of marked) ring(context, spot, { view, size, top }, variable("culprit"));
      if (cursor) ring(context, cursor, { view, size, top }, variable("ink"));
    },
    [image, axis, view, marked, cursor, top, t],
  );
  const { ref, width, height } = useCanvas(draw, (wide) => wide - LEFT - rightOf(axis) + top + 2);
  const size = Math.max(1, Math.min(width - LEFT - rightOf(axis), height - top));
  const under = (x: number, y: number) => ({ column: view.column + ((x - LEFT) / size) * view.span, row: view.row + ((y - top) / size) * view.span });
  const spotAt = (x: number, y: number): Spot | null => (x < LEFT || y < top ? null : nearest(values, count, under(x, y), Math.ceil((REACH * view.span) / size)));
  const zoomBy = (factor: number): void =>
    setView((old) => zoom(old, count, factor, cursor ?? { column: old.column + old.span / 2, row: old.row + old.span / 2 }));
  // Added by hand because Preact's handler would be passive; with Ctrl only, so that the page scrolls past its charts.
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
    if (start && Math.abs(start.x - event.clientX) + Math.abs(start.y - event.clientY) > 3) {
      start.moved = true;
      const perPixel = start.view.span / size;
      setView(move(start.view, count, (start.x - event.clientX) * perPixel, (start.y - event.clientY) * perPixel));
      hideTip();
      return;
    }
    const spot = spotAt(event.offsetX, event.offsetY);
    const told = spot && tip(spot);
    if (told) showTip(event.clientX, event.clientY, told);
    else hideTip();
  };
  const step = (rows: number, columns: number): void => {
    const from = cursor ?? { row: 0, column: 0 };
    const next = following(values, count, from, rows, columns) ?? from;
    setCursor(next);
    setView((old) => (isVisible(next, old) ? old : around(next, count, old.span)));
    const box = ref.current?.getBoundingClientRect();
    const told = tip(next);
    if (box && told) showTip(box.left + LEFT, box.top + top, told);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const actions: Record<string, () => void> = {
      ArrowRight: () => step(0, 1), ArrowLeft: () => step(0, -1), ArrowDown: () => step(1, 0), ArrowUp: () => step(-1, 0),
      "+": () => zoomBy(0.6), "=": () => zoomBy(0.6), "-": () => zoomBy(1.6), "0": () => setView(whole(count)),
      Enter: () => { if (cursor) onPick(cursor); },
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
      <div class="canvas" style={{ maxWidth: `${Math.min(WIDEST, LEFT + rightOf(axis) + count * WIDEST_CELL)}px` }}>
        <canvas ref={ref} tabIndex={0} role="application" aria-label={label} data-pick=""
          onPointerDown={(event) => { drag.current = { x: event.clientX, y: event.clientY, view, moved: false }; event.currentTarget.setPointerCapture(event.pointerId); }}
          onPointerUp={(event) => {
            const spot = drag.current && !drag.current.moved ? spotAt(event.offsetX, event.offsetY) : null;
            drag.current = null;
            if (spot) onPick(spot);
          }}
          onPointerCancel={() => { drag.current = null; }}
          onPointerMove={onMove}
          onPointerLeave={hideTip}
          onBlur={() => { setCursor(null); hideTip(); }}
          onKeyDown={onKeyDown} />
      </div>
    </div>
  );
}

const known = (values: Float32Array, index: number): boolean => values[index] === values[index];

/** The link under the pointer, or the closest one it could mean when cells are smaller than pixels. */
function nearest(values: Float32Array, count: number, at: { row: number; column: number }, reach: number): Spot | null {
  const [row, column] = [Math.floor(at.row), Math.floor(at.column)];
  for (let ring = 0; ring <= reach; ring++) {
    for (let r = row - ring; r <= row + ring; r++) {
      for (let c = column - ring; c <= column + ring; c++) {
        const edge = Math.max(Math.abs(r - row), Math.abs(c - column)) === ring;
        if (edge && r >= 0 && c >= 0 && r < count && c < count && known(values, r * count + c)) return { row: r, column: c };
      }
    }
  }
  return null;
}

/** The next link in a direction: along the row or the column, then the next line that has one. */
function following(values: Float32Array, count: number, from: Spot, rows: number, columns: number): Spot | null {
  const total = count * count;
  const step = columns !== 0 ? columns : rows * count;
  for (let at = from.row * count + from.column + step; at >= 0 && at < total; at += columns !== 0 ? columns : rows * count) {
    if (known(values, at)) return { row: Math.floor(at / count), column: at % count };
  }
  return null;
}

function isVisible(spot: Spot, view: Viewport): boolean {
  return spot.row >= view.row && spot.row < view.row + view.span && spot.column >= view.column && spot.column < view.column + view.span;
}

function ring(context: CanvasRenderingContext2D, at: Spot, { view, size, top }: { view: Viewport; size: number; top: number }, color: string): void {
  const cell = size / view.span;
  const side = Math.max(9, cell + 2);
  const x = LEFT + (at.column - view.column + 0.5) * cell;
  const y = top + (at.row - view.row + 0.5) * cell;
  if (x < LEFT || y < top || x > LEFT + size || y > top + size) return;
  context.strokeStyle = color;
  context.lineWidth = 2.5;
  context.strokeRect(x - side / 2, y - side / 2, side, side);
  context.lineWidth = 1;
}
