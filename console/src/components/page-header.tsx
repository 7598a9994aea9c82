/** The title of a page with its actions, and the title of the window. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

export function PageHeader(props: { title: string; subtitle?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · regroup`;
  }, [props.title]);
  return (
    <header class="page-header">
      <div>
        <h1>{props.title}</h1>
        {props.subtitle && <p class="quiet">{props.subtitle}</p>}
      </div>
      <div class="actions">{props.children}</div>
    </header>
  );
}
