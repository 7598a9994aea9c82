/** The address of the page as signals. Pages read filters and selections from it, so a link reproduces what is seen. */

import { computed, signal } from "@preact/signals";
import { consoleUrl } from "../api/location";

const address = signal(new URL(globalThis.location.href));

/** Path below the console without slashes at its ends, for example `jobs/j_1/story`. */
export const path = computed(() => relativePath(address.value));

/** Query of the address. */
export const query = computed(() => new URLSearchParams(address.value.search));

/** Return the address of a path of the console, for links. */
export function href(to: string, values: Record<string, string | undefined> = {}): string {
  const url = new URL(to, consoleUrl());
  for (const [name, value] of Object.entries(values)) if (value) url.searchParams.set(name, value);
  return url.pathname + url.search;
}

/** Show another page of the console. */
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  const url = new URL(to, consoleUrl());
  if (url.href === address.value.href) return;
  history[options.replace ? "replaceState" : "pushState"](null, "", url);
  address.value = url;
  if (!options.replace) globalThis.scrollTo?.(0, 0);
}

/** Change values of the query and keep the others. An empty value removes its name. No new entry in the history. */
export function setQuery(values: Record<string, string | undefined>): void {
  const url = new URL(address.value);
  for (const [name, value] of Object.entries(values)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  navigate(url.pathname + url.search, { replace: true });
}

/** Follow links of the console without loading the page again, and the browser's buttons. Call once. */
export function installRouter(): void {
  globalThis.addEventListener("popstate", () => {
    address.value = new URL(globalThis.location.href);
  });
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a[href]") as HTMLAnchorElement | null;
    if (link === null || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target !== "" || link.hasAttribute("download") || link.origin !== consoleUrl().origin) return;
    if (!link.pathname.startsWith(consoleUrl().pathname)) return;
    if (link.hash !== "" && link.pathname === address.value.pathname && link.search === address.value.search) return;
    event.preventDefault();
    navigate(link.pathname + link.search + link.hash);
  });
}

function relativePath(url: URL): string {
  const base = consoleUrl().pathname;
  const below = url.pathname.startsWith(base) ? url.pathname.slice(base.length) : "";
  return below.replace(/^\/+|\/+$/g, "");
}
