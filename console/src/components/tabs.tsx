/** Links to the parts of a page. Arrow keys move between them. */

import { useEffect, useRef } from "preact/hooks";
import { href } from "../state/router";

export interface Tab {
  id: string;
  label: string;
}

export function Tabs({ base, tabs, current }: { base: string; tabs: readonly Tab[]; current: string }) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a narrow screen only some tabs fit: the chosen one is always visible.
    const link = box.current?.querySelector<HTMLElement>("[aria-current]");
    if (link && box.current)
      box.current.scrollLeft = link.offsetLeft - (box.current.clientWidth - link.offsetWidth) / 2;
  }, [current]);
  return (
    <nav class="tabs" ref={box} aria-label="Parts of this page" onKeyDown={moveFocus}>
      {tabs.map((tab) => (
        <a key={tab.id} href={href(`${base}/${tab.id}`)} aria-current={tab.id === current ? "page" : undefined}>
          {tab.label}
        </a>
      ))}
    </nav>
  );
}

function moveFocus(event: KeyboardEvent): void {
  const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("a")];
  const at = links.indexOf(event.target as HTMLElement);
  const count = links.length;
  const places: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1 + count, Home: 0, End: count - 1 };
  const place = places[event.key];
  if (at < 0 || place === undefined) return;
  event.preventDefault();
  links[place % count]?.focus();
}
