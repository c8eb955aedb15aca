// Filters of a page, kept in its address.
import type { ComponentChildren } from "preact";
import { readRankList } from "../api/rankList";
import { useRunData } from "../api/runData";
import { Choice } from "./Choice";
import { useRouter, useSetting } from "./router";
import { useText } from "../i18n/text";

interface PickProps {
  name: string;
  label: string;
  options: readonly (readonly [value: string, label: string])[];
  all: string;
}

/** One of several values; picking another one goes back to the first page of tables. */
export function Pick({ name, label, options, all }: PickProps) {
  const { place, set } = useRouter();
  if (options.length < 2) return null;
  return (
    <label class="pick">
      <span>{label}</span>
      <select
        name={name}
        value={place.query.get(name) ?? ""}
        onChange={(event) => set({ [name]: event.currentTarget.value, page: null })}
      >
        <option value="">{all}</option>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** `all`: rows of all steps are listed, not averaged. */
export function StepPick({ all }: { all?: boolean }) {
  const t = useText();
  const steps = Array.from(useRunData().document.tables.steps.num("step"));
  return (
    <Pick
      name="step"
      label={t("ui.column.step")}
      all={t(all ? "ui.filter.all" : "ui.web.filter.mean")}
      options={steps.map((step) => [String(step), String(step)] as const)}
    />
  );
}

export function HostPick() {
  const t = useText();
  const hosts = useRunData().cluster.hosts.filter((host) => host.name);
  return (
    <Pick
      name="host"
      label={t("ui.column.host")}
      all={t("ui.filter.all")}
      options={hosts.map((host) => [host.name, host.name] as const)}
    />
  );
}

export function StagePick() {
  const t = useText();
  const stages = [
    ...new Set(useRunData().cluster.ranks.flatMap((rank) => (rank.stage === null ? [] : [rank.stage]))),
  ].sort((a, b) => a - b);
  return (
    <Pick
      name="stage"
      label={t("ui.column.stage")}
      all={t("ui.filter.all")}
      options={stages.map((stage) => [String(stage), String(stage)] as const)}
    />
  );
}

/** Ranks like 0-7, 12; what is no such list is shown as typed, and the tables say so. */
export function RankField({ name = "rank", label }: { name?: string; label: string }) {
  const { place, set } = useRouter();
  const value = place.query.get(name) ?? "";
  return (
    <label class="pick">
      <span>{label}</span>
      <input
        type="search"
        name={name}
        size={9}
        placeholder="0-7, 12"
        value={value}
        aria-invalid={readRankList(value) === null}
        onInput={(event) => set({ [name]: event.currentTarget.value, page: null })}
      />
    </label>
  );
}

/** Whether bytes and times of a table are per step or in total. */
export function usePer(): "step" | "total" {
  return useRouter().place.query.get("per") === "total" ? "total" : "step";
}

export function PerChoice() {
  const t = useText();
  const { set } = useRouter();
  return (
    <Choice
      label={t("ui.web.per")}
      value={usePer()}
      onChange={(per) => set({ per: per === "total" ? per : null })}
      options={[
        { value: "step", label: t("ui.web.per.step") },
        { value: "total", label: t("ui.web.per.total") },
      ]}
    />
  );
}

interface TextFieldProps {
  name: string;
  label: string;
  prefix?: string;
}

export function TextField({ name, label, prefix = "" }: TextFieldProps) {
  const { place, set } = useRouter();
  return (
    <label class="pick">
      <span>{label}</span>
      <input
        type="search"
        name={name}
        size={16}
        value={place.query.get(name) ?? ""}
        onInput={(event) => set({ [name]: event.currentTarget.value.trim(), [`${prefix}page`]: null })}
      />
    </label>
  );
}

interface TabsProps {
  name: string;
  label: string;
  options: readonly (readonly [value: string, label: string])[];
}

/** Sub-pages of a page. */
export function Tabs({ name, label, options }: TabsProps) {
  const [value] = useSetting(name, options[0][0]);
  const { set } = useRouter();
  return (
    <div class="tabs" role="tablist" aria-label={label}>
      {options.map(([one, text]) => (
        <button
          key={one}
          type="button"
          role="tab"
          aria-selected={one === value}
          data-tab={one}
          onClick={() => set({ [name]: one === options[0][0] ? null : one, sort: null, page: null }, true)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

export function Title({
  title,
  note,
  children,
}: {
  title: string;
  note?: string | undefined;
  children?: ComponentChildren;
}) {
  return (
    <div class="title">
      <h1>{title}</h1>
      {note && <p class="note">{note}</p>}
      {children}
    </div>
  );
}
