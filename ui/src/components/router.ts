// Addresses: the path says which page, the query how it is set; every view can be shared as it stands.
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";

export interface Place {
  path: string[];
  query: URLSearchParams;
}

export interface Router {
  place: Place;
  /** To another page; the back button returns. */
  go: (address: string) => void;
  /** Another setting of the same page. */
  set: (values: Record<string, string | number | null>, keep?: boolean) => void;
}

const read = (): Place => ({
  path: location.pathname.split("/").filter(Boolean).map(decoded),
  query: new URLSearchParams(location.search),
});

/** An address somebody mistyped is a page that does not exist, not an error. */
function decoded(piece: string): string {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}

export function useRouting(): Router {
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const follow = (): void => setPlace(read());
    addEventListener("popstate", follow);
    return () => removeEventListener("popstate", follow);
  }, []);
  const go = (address: string): void => {
    history.pushState(null, "", address);
    setPlace(read());
    scrollTo(0, 0);
  };
  const set = (values: Record<string, string | number | null>, keep = false): void => {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, String(value));
    }
    const text = query.toString();
    history[keep ? "pushState" : "replaceState"](null, "", location.pathname + (text ? `?${text}` : ""));
    setPlace(read());
  };
  return { place, go, set };
}

export const RouterContext = createContext<Router | null>(null);

export function useRouter(): Router {
  const router = useContext(RouterContext);
  if (!router) throw new Error("a page stands outside its router");
  return router;
}

/** A setting of the page that lives in its address. */
export function useSetting(name: string, fallback = ""): [string, (value: string) => void] {
  const { place, set } = useRouter();
  return [place.query.get(name) ?? fallback, (value) => set({ [name]: value === fallback ? null : value })];
}

export function runAddress(
  run: string,
  page = "overview",
  query: Record<string, string | number | null | undefined> = {},
): string {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `/runs/${encodeURIComponent(run)}/${page}${text ? `?${text}` : ""}`;
}
