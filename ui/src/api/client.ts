// Asking the server: JSON or columns, cancelled when the answer is no longer wanted.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem as ProblemAnswer, Progress, RunInfo, RunList } from "./types";
import { decodeColumns, type BinaryTable } from "./binaryColumns";

export type { Progress, RunInfo, RunList };

/** What went wrong, in the server's words. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string | null,
    readonly phase: Progress["phase"] | null,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | null | undefined | string[]>;

export function address(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value) parameters.append(name, one);
    else if (value !== null && value !== undefined && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `/api/v1/${path}${text ? `?${text}` : ""}`;
}

async function answer(url: string, options: RequestInit): Promise<Response> {
  let response: Response;
  try {
    const language = { "accept-language": document.documentElement.lang };
    response = await fetch(url, { ...options, headers: language });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, "", null, null);
  }
  if (response.ok) return response;
  if (response.status === 401) location.assign("/login");
  const told = (await response.json().catch(() => ({}))) as Partial<ProblemAnswer>;
  throw new Problem(response.status, told.error ?? response.statusText, told.hint ?? null, told.phase ?? null);
}

export async function getJson<T>(url: string, signal?: AbortSignal): Promise<T> {
  return (await answer(url, signal ? { signal } : {})).json() as Promise<T>;
}

export async function post<T>(url: string): Promise<T> {
  return (await answer(url, { method: "POST" })).json() as Promise<T>;
}

export async function getColumns(url: string, signal?: AbortSignal): Promise<BinaryTable> {
  return decodeColumns(await (await answer(url, signal ? { signal } : {})).arrayBuffer());
}

export interface Asked<T> {
  value: T | null;
  /** The address that `value` answers: an older one than was asked for while the new answer is in flight. */
  answered: string | null;
  problem: Problem | null;
  busy: boolean;
}

const NOTHING = { value: null, answered: null, problem: null, busy: false };

/** Asks whenever the address changes; the old answer stays until the new one is there. */
function useAsked<T>(url: string | null, ask: (url: string, signal: AbortSignal) => Promise<T>): Asked<T> {
  const [asked, setAsked] = useState<Asked<T>>({ ...NOTHING, busy: url !== null });
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    if (url === null) {
      setAsked(NOTHING);
      return undefined;
    }
    const cancel = new AbortController();
    setAsked((old) => ({ ...old, busy: true }));
    latest.current(url, cancel.signal).then(
      (value) => setAsked({ value, answered: url, problem: null, busy: false }),
      (error: unknown) => {
        if (cancel.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, String(error), null, null);
        setAsked({ ...NOTHING, problem });
      },
    );
    return () => cancel.abort();
  }, [url]);
  return asked;
}

export const useJson = <T>(url: string | null): Asked<T> => useAsked<T>(url, getJson);
export const useColumns = (url: string | null): Asked<BinaryTable> => useAsked(url, getColumns);

/** Asks again and again while `wanted` says so; never before the last answer has come, however slow the server is. */
export function usePolling(tick: () => Promise<void>, milliseconds: number, wanted: boolean): void {
  const latest = useRef(tick);
  latest.current = tick;
  useEffect(() => {
    if (!wanted) return undefined;
    let asking = false;
    const timer = setInterval(() => {
      if (document.hidden || asking) return;
      asking = true;
      void latest.current().finally(() => {
        asking = false;
      });
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds, wanted]);
}
