/** The frame of all pages: navigation, connection, colours, keyboard. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { unanswered } from "./api/client";
import { serverUrl } from "./api/location";
import { Icon } from "./components/icon";
import { KeyboardHelp } from "./components/keyboard-help";
import type { Page } from "./pages";
import { PAGES } from "./pages";
import { isConnected } from "./state/changes";
import { me } from "./state/identity";
import { installKeys } from "./state/keys";
import { href } from "./state/router";
import { type Theme, theme } from "./state/theme";

const NEXT_THEME: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function Shell({ page, children }: { page: Page; children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(installKeys, []);
  useEffect(() => setOpen(false), [page]);
  const menu = useRef<HTMLButtonElement>(null);
  const closeMenu = (event: KeyboardEvent) => {
    if (!isOpen || event.key !== "Escape") return;
    event.preventDefault();
    setOpen(false);
    menu.current?.focus();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape closes the menu, wherever the focus is
    <div class="shell" onKeyDown={closeMenu}>
      {/* biome-ignore lint/a11y/useValidAnchor: the base of all addresses is not this page */}
      <a class="skip" href="#content" onClick={skip}>
        Skip to content
      </a>
      <header class="bar">
        <button
          type="button"
          ref={menu}
          class="plain menu"
          aria-label="Menu"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name="menu" />
        </button>
        <a class="brand" href={href("")}>
          regroup
        </a>
        <Connection />
        <span class="spacer" />
        <a class="plain" href={new URL("docs", serverUrl()).href} target="_blank" rel="noreferrer">
          API
        </a>
        <button
          type="button"
          class="plain"
          onClick={() => {
            theme.value = NEXT_THEME[theme.value];
          }}
        >
          Colours: {theme.value}
        </button>
        <a class="plain" href={href("admin")} title="Your identity, tokens and sessions">
          {me.value?.subject}
        </a>
      </header>
      <nav class={isOpen ? "side open" : "side"} aria-label="Pages">
        {PAGES.filter((each) => each.nav !== undefined).map((each) => (
          <a
            key={each.pattern}
            href={href(each.pattern)}
            aria-current={each.pattern === (page.parent ?? page.pattern) ? "page" : undefined}
          >
            <Icon name={each.nav?.icon ?? "jobs"} />
            <span>{each.nav?.label}</span>
            <kbd>g {each.nav?.key}</kbd>
          </a>
        ))}
      </nav>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
      <KeyboardHelp />
    </div>
  );
}

/** Move the focus to the page. The address stays: it is that of the page, not of its base. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function Connection() {
  return (
    <span class="connection" role="status">
      {isConnected.value && unanswered.value === 0 ? "" : "Reconnecting to the server. This page stays as it is."}
    </span>
  );
}
