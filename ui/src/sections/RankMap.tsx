// Who, at a glance: the cluster by host, coloured by what the ranks do themselves or suffer.
import { useCallback, useMemo, useState } from "preact/hooks";
import { ClusterMap } from "../charts/ClusterMap";
import { Ramp, type RampMark } from "../charts/Ramp";
import { clamp } from "../charts/scale";
import { Choice } from "../components/Choice";
import { PARTS, type Rank, type Share } from "../api/cluster";
import { duration, percent, signedPercent } from "../i18n/numbers";
import { useText, type Key, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";
import { fullName } from "../i18n/rankNames";

const METRICS = ["self_time", "waiting", "exposed"] as const;
type Metric = (typeof METRICS)[number];

const COLORS: Record<Metric, string> = { self_time: "compute", waiting: "waiting-deep", exposed: "exposed" };
/** Differences below this are noise and must not be stretched over the whole scale. */
const LEAST_EXCESS = 0.1;

export function RankMap({ onPick }: { onPick: (rank: Rank) => void }) {
  const t = useText();
  const { cluster, shares, focus } = useRunData();
  const [metric, setMetric] = useState<Metric>("self_time");
  const byRank = useMemo(() => new globalThis.Map(shares.map((share) => [share.rank.rank, share])), [shares]);
  const most = useMemo(() => scaleOf(shares, metric), [shares, metric]);
  const fraction = useCallback(
    (rank: Rank) => {
      const share = byRank.get(rank.rank);
      // A rank without peers has no excess: it is known, and not above anything.
      return share ? clamp((valueOf(share, metric) || 0) / most, 0, 1) : null;
    },
    [byRank, metric, most],
  );
  const tip = (rank: Rank) => {
    const share = byRank.get(rank.rank);
    return {
      title: fullName(rank, t),
      lines: share ? lines(share, t) : ([[t("ui.map.missing"), ""]] as [string, string][]),
    };
  };
  if (shares.length === 0) return null;
  const missing = cluster.ranks.some((rank) => !byRank.has(rank.rank));
  return (
    <aside class="map" aria-label={t("ui.map.title")}>
      <h2>{t("ui.map.title")}</h2>
      <Choice
        label={t("ui.map.metric")}
        options={METRICS.map((value) => ({ value, label: t(`ui.map.${value}` as Key) }))}
        value={metric}
        onChange={setMetric}
      />
      <ClusterMap
        cluster={cluster}
        fraction={fraction}
        tip={tip}
        color={COLORS[metric]}
        marked={focus.ranks}
        onPick={onPick}
      />
      <Ramp
        color={COLORS[metric]}
        ends={["0", shown(most, metric)]}
        title={t(`ui.map.${metric}.legend` as Key)}
        marks={marksOf(shares, focus.ranks, { metric, most, t })}
      />
      <ul class="legend">
        {focus.ranks.size > 0 && (
          <li>
            <i class="culprit" />
            {t("ui.map.culprit")}
          </li>
        )}
        {missing && (
          <li>
            <i class="missing" />
            {t("ui.map.missing")}
          </li>
        )}
      </ul>
    </aside>
  );
}

const shown = (value: number, metric: Metric): string =>
  metric === "self_time" ? signedPercent(value) : duration(value);

/** Of the ranks the finding names, the one with the largest value. */
function marksOf(
  shares: Share[],
  named: ReadonlySet<number>,
  { metric, most, t }: { metric: Metric; most: number; t: Text },
): RampMark[] {
  const values = shares
    .filter((share) => named.has(share.rank.rank) && Number.isFinite(valueOf(share, metric)))
    .sort((a, b) => valueOf(b, metric) - valueOf(a, metric));
  if (values.length === 0) return [];
  const [worst] = values;
  const value = valueOf(worst, metric);
  return [{ at: value / most, label: `${t("ui.name.rank", { n: worst.rank.rank })} ${shown(value, metric)}` }];
}

function scaleOf(shares: Share[], metric: Metric): number {
  const most = shares.reduce((high, share) => Math.max(high, valueOf(share, metric) || 0), 0);
  return metric === "self_time" ? Math.max(LEAST_EXCESS, most) : most || 1;
}

const valueOf = (share: Share, metric: Metric): number => (metric === "self_time" ? share.excess : share.parts[metric]);

function lines(share: Share, t: ReturnType<typeof useText>): [string, string][] {
  return [
    [t("ui.column.self_time"), `${duration(share.selfTime)} · ${signedPercent(share.excess)}`],
    ...PARTS.filter((part) => share.parts[part] > 0).map((part): [string, string] => [
      t(`ui.part.${part}` as Key),
      `${duration(share.parts[part])} · ${percent(share.parts[part] / share.duration)}`,
    ]),
  ];
}
