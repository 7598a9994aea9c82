/** Colours: those of the system, or the choice of this browser. */

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "regroup-theme";

/** The choice of this browser. */
export const theme = signal<Theme>(storedTheme());

/** Apply and store each choice. Call once. */
export function installTheme(): void {
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
    try {
      localStorage.setItem(KEY, theme.value);
    } catch {
      // The choice holds until the page closes.
    }
  });
}

function storedTheme(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}
