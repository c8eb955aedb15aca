// A canvas that is sharp on any screen and redraws when its size, its data or the theme changes.
import { createContext, type RefObject } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";

/** Changes whenever the colours of the page do. */
export const ThemeContext = createContext<"light" | "dark">("light");

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;

export function useCanvas(
  draw: Draw,
  height: number | ((width: number) => number),
): { ref: RefObject<HTMLCanvasElement>; width: number; height: number } {
  const ref = useRef<HTMLCanvasElement>(null);
  const width = useWidth(ref);
  const theme = useContext(ThemeContext);
  const tall = typeof height === "number" ? height : height(width);
  useEffect(() => {
    const canvas = ref.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${tall}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, tall);
    timed("draw", () => draw(context, width, tall));
  }, [draw, width, tall, theme]);
  return { ref, width, height: tall };
}

export function useWidth(ref: RefObject<HTMLElement>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = ref.current?.parentElement;
    if (!element) return undefined;
    const measure = (): void => setWidth(Math.floor(element.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [ref]);
  return width;
}

/** Shows up in the browser's performance tools, and in benchmarks/web.py. */
export function timed<T>(name: string, work: () => T): T {
  const start = performance.now();
  const result = work();
  performance.measure(`paceline ${name}`, { start, end: performance.now() });
  return result;
}
