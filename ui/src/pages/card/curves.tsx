// Curves of a card: one series per name, and their legend.
import { Columns } from "../../api/columns";
import type { Series } from "../../charts/Curve";

export function Legend({ series }: { series: Series[] }) {
  if (series.length < 2) return null;
  return (
    <ul class="legend">
      {series.map((one) => (
        <li key={one.name}>
          <i
            class="line"
            style={{ borderTopColor: `var(--${one.color})`, borderTopStyle: one.dashed ? "dashed" : "solid" }}
          />
          {one.name}
        </li>
      ))}
    </ul>
  );
}

export function byName(table: Columns, name: string, x: string, y: string, colors: string[]): Series[] {
  const names = table.text(name);
  const [xs, ys] = [table.num(x), table.num(y)];
  const found = new Map<string, Series>();
  for (let i = 0; i < table.length; i++) {
    const key = names[i] ?? "";
    const one = found.get(key) ?? { name: key, color: colors[found.size % colors.length], x: [], y: [] };
    found.set(key, one);
    one.x.push(xs[i]);
    one.y.push(ys[i]);
  }
  return [...found.values()];
}
