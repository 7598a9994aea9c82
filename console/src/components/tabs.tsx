/** Links to the parts of a page. */

import { href } from "../state/router";

export interface Tab {
  id: string;
  label: string;
}

export function Tabs({ base, tabs, current }: { base: string; tabs: readonly Tab[]; current: string }) {
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {tabs.map((tab) => (
        <a key={tab.id} href={href(`${base}/${tab.id}`)} aria-current={tab.id === current ? "page" : undefined}>
          {tab.label}
        </a>
      ))}
    </nav>
  );
}
