// Sender × receiver on a canvas: any number of links, zoomed by wheel, keys and buttons, moved by dragging.
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "./tooltip";
import { useText } from "../i18n/text";
import { variable } from "./color";
import { drawAxes, drawRing, LEFT, rightOf, topOf, type Axis, type Spot } from "./matrixAxes";
import type { MatrixGrid } from "./matrixGrid";
import { ThemeContext, useCanvas } from "./useCanvas";
import { around, contains, move, whole, zoom, type Viewport } from "./viewport";

interface MatrixProps {
  axis: Axis;
  grid: MatrixGrid;
  tip: (spot: Spot) => Tip | null;
  label: string;
  /** The cell to show close up, when a finding or a table names it. */
  target: Spot | null;
  onPick?: (spot: Spot) => void;
}

/** Few ranks must not become tiles the size of a hand, and a large matrix must fit on a screen. */
const WIDEST_CELL = 60;
const WIDEST = 900;
/** Small cells are searched for this many pixels around the pointer. */
const REACH = 3;

export function Matrix({ axis, grid, tip, label, target, onPick }: MatrixProps) {
  const { count } = axis;
  const top = topOf(axis);
  const [view, setView] = useView(count, target);
  const [cursor, setCursor] = useState<Spot | null>(null);
  const { ref, size } = useMatrixCanvas({ axis, grid, view, cursor });
  const under = (x: number, y: number): Spot => ({
    column: view.column + ((x - LEFT) / size) * view.span,
    row: view.row + ((y - top) / size) * view.span,
  });
  const spotAt = (x: number, y: number): Spot | null =>
    x < LEFT || y < top ? null : grid.nearest(under(x, y), Math.ceil((REACH * view.span) / size) - 1);
  const zoomBy = (factor: number, at?: Spot): void =>
    setView((old) => zoom(old, count, factor, at ?? cursor ?? centre(old)));
  const step = (rows: number, columns: number): void => {
    const next = grid.next(cursor, rows, columns);
    if (!next) return;
    setCursor(next);
    setView((old) => (contains(old, next) ? old : around(next, count, old.span)));
    const box = ref.current?.getBoundingClientRect();
    const text = tip(next);
    if (box && text) showTip(box.left + LEFT, box.top + top, text);
  };
  const onHover = (event: PointerEvent): void => {
    const spot = spotAt(event.offsetX, event.offsetY);
    const text = spot && tip(spot);
    if (text) showTip(event.clientX, event.clientY, text);
    else hideTip();
  };
  const onClick = (event: PointerEvent): void => {
    const spot = spotAt(event.offsetX, event.offsetY);
    if (spot) onPick?.(spot);
  };
  const dragging = useDragging({ view, size, count, setView, onHover, onClick });
  useZoomWheel(ref, (event) => zoomBy(event.deltaY > 0 ? 1.25 : 0.8, under(event.offsetX, event.offsetY)));
  const keys: Record<string, () => void> = {
    ArrowRight: () => step(0, 1),
    ArrowLeft: () => step(0, -1),
    ArrowDown: () => step(1, 0),
    ArrowUp: () => step(-1, 0),
    "+": () => zoomBy(0.6),
    "=": () => zoomBy(0.6),
    "-": () => zoomBy(1.6),
    "0": () => setView(whole(count)),
    Enter: () => {
      if (cursor) onPick?.(cursor);
    },
  };
  return (
    <div class="matrix">
      <ZoomButtons onZoom={zoomBy} onReset={() => setView(whole(count))} isWhole={view.span >= count} />
      <div class="canvas" style={{ maxWidth: `${Math.min(WIDEST, LEFT + rightOf(axis) + count * WIDEST_CELL)}px` }}>
        <canvas
          ref={ref}
          tabIndex={0}
          role="application"
          aria-label={label}
          {...(onPick ? { "data-pick": "" } : {})}
          {...dragging}
          onDblClick={(event) => {
            if (!onPick) zoomBy(0.4, under(event.offsetX, event.offsetY));
          }}
          onBlur={() => {
            setCursor(null);
            hideTip();
          }}
          onKeyDown={(event) => {
            const action = keys[event.key];
            if (!action || event.ctrlKey || event.metaKey) return;
            event.preventDefault();
            action();
          }}
        />
      </div>
    </div>
  );
}

const centre = (view: Viewport): Spot => ({ column: view.column + view.span / 2, row: view.row + view.span / 2 });

/** All of the matrix at first, or the surroundings of the target in a large one. */
function useView(count: number, target: Spot | null) {
  const [view, setView] = useState<Viewport>(() => whole(count));
  useEffect(() => setView(target && count > 48 ? around(target, count, 32) : whole(count)), [target, count]);
  return [view, setView] as const;
}

interface MatrixCanvasProps {
  axis: Axis;
  grid: MatrixGrid;
  view: Viewport;
  cursor: Spot | null;
}

function useMatrixCanvas({ axis, grid, view, cursor }: MatrixCanvasProps) {
  const t = useText();
  const theme = useContext(ThemeContext);
  const top = topOf(axis);
  const sizeIn = (width: number, height: number): number => Math.min(width - LEFT - rightOf(axis), height - top);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, height: number) => {
      const size = sizeIn(width, height);
      const frame = { view, cell: size / view.span, top, size };
      context.fillStyle = variable("plot");
      context.fillRect(LEFT, top, size, size);
      clipped(context, frame, 0, () => grid.paint(context, frame, theme));
      drawAxes(context, {
        axis,
        view,
        size,
        marked: grid.marked,
        words: [t("ui.links.sender"), t("ui.links.receiver")],
      });
      clipped(context, frame, 3, () => {
        for (const spot of grid.marked) drawRing(context, spot, frame, variable("culprit"));
        if (cursor) drawRing(context, cursor, frame, variable("ink"));
      });
    },
    [axis, grid, view, cursor, theme, t],
  );
  const { ref, width, height } = useCanvas(draw, (wide) => wide - LEFT - rightOf(axis) + top + 2);
  return { ref, size: Math.max(1, sizeIn(width, height)) };
}

/** Draws inside the plot; `margin` pixels more on every side for what surrounds cells. */
function clipped(
  context: CanvasRenderingContext2D,
  { top, size }: { top: number; size: number },
  margin: number,
  draw: () => void,
): void {
  context.save();
  context.beginPath();
  context.rect(LEFT - margin, top - margin, size + 2 * margin, size + 2 * margin);
  context.clip();
  draw();
  context.restore();
}

interface DraggingProps {
  view: Viewport;
  size: number;
  count: number;
  setView: (view: Viewport) => void;
  onHover: (event: PointerEvent) => void;
  onClick: (event: PointerEvent) => void;
}

/** A press that moves drags the matrix; one that does not is a click. */
function useDragging({ view, size, count, setView, onHover, onClick }: DraggingProps) {
  const drag = useRef<{ x: number; y: number; view: Viewport; moved: boolean } | null>(null);
  const stop = (): void => {
    drag.current = null;
  };
  return {
    onPointerDown: (event: PointerEvent) => {
      drag.current = { x: event.clientX, y: event.clientY, view, moved: false };
      (event.currentTarget as Element).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const start = drag.current;
      if (!start) return onHover(event);
      const [across, down] = [start.x - event.clientX, start.y - event.clientY];
      if (!start.moved && Math.abs(across) + Math.abs(down) <= 3) return;
      start.moved = true;
      const perPixel = start.view.span / size;
      setView(move(start.view, count, across * perPixel, down * perPixel));
      hideTip();
    },
    onPointerUp: (event: PointerEvent) => {
      if (drag.current && !drag.current.moved) onClick(event);
      stop();
    },
    onPointerCancel: stop,
    onPointerLeave: hideTip,
  };
}

/** Wheel with Ctrl only: a page must scroll past its charts. Added by hand because Preact's handler would be passive. */
function useZoomWheel(ref: { current: HTMLCanvasElement | null }, onZoom: (event: WheelEvent) => void): void {
  useEffect(() => {
    const canvas = ref.current;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      onZoom(event);
    };
    canvas?.addEventListener("wheel", onWheel, { passive: false });
    return () => canvas?.removeEventListener("wheel", onWheel);
  });
}

interface ZoomButtonsProps {
  onZoom: (factor: number) => void;
  onReset: () => void;
  isWhole: boolean;
}

function ZoomButtons({ onZoom, onReset, isWhole }: ZoomButtonsProps) {
  const t = useText();
  return (
    <div class="zoom">
      <button type="button" aria-label={t("ui.links.zoomin")} title={t("ui.links.zoomin")} onClick={() => onZoom(0.6)}>
        +
      </button>
      <button
        type="button"
        aria-label={t("ui.links.zoomout")}
        title={t("ui.links.zoomout")}
        onClick={() => onZoom(1.6)}
      >
        −
      </button>
      <button type="button" onClick={onReset} disabled={isWhole}>
        {t("ui.links.reset")}
      </button>
    </div>
  );
}
