// The time in communication operators, split as the tables split it.

/** Transfer, waiting, and neither; they add up to the time. Without recorded transfers, all that is not waiting is transfer. */
export function communicationParts(time: number, waiting: number, transit: number): [number, number, number] {
  const all = time || 0;
  const waited = Math.min(all, waiting || 0);
  const moved = Number.isFinite(transit) ? Math.min(transit, all - waited) : all - waited;
  return [moved, waited, all - waited - moved];
}
