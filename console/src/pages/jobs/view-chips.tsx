/** Saved filters as links, and a form that saves the present one. */

import { useState } from "preact/hooks";
import { Icon } from "../../components/icon";
import { href } from "../../state/router";
import { deleteView, FIXED_VIEWS, ownViews, saveView } from "./saved-views";

export function ViewChips({ filter }: { filter: string }) {
  const [name, setName] = useState<string>();
  const views = [...FIXED_VIEWS, ...ownViews.value];
  const isSaved = views.some((each) => each.filter === filter);
  const save = (event: Event) => {
    event.preventDefault();
    if (name?.trim()) saveView({ name: name.trim(), filter });
    setName(undefined);
  };
  return (
    <nav class="jobs-views" aria-label="Views">
      {FIXED_VIEWS.map((view) => (
        <Chip key={view.name} {...view} current={filter} />
      ))}
      {ownViews.value.map((view) => (
        <span key={view.name} class="jobs-own-view">
          <Chip {...view} current={filter} />
          <button
            type="button"
            class="plain"
            aria-label={`Delete the view ${view.name}`}
            onClick={() => deleteView(view.name)}
          >
            <Icon name="close" />
          </button>
        </span>
      ))}
      {!isSaved && name === undefined && (
        <button type="button" class="link" onClick={() => setName("")}>
          Save this view
        </button>
      )}
      {name !== undefined && (
        <form onSubmit={save}>
          <input
            aria-label="Name of the view"
            placeholder="Name of the view"
            maxLength={40}
            ref={(element) => element?.focus()}
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Escape" && setName(undefined)}
          />
          <button type="submit">Save</button>
        </form>
      )}
    </nav>
  );
}

function Chip({ name, filter, current }: { name: string; filter: string; current: string }) {
  return (
    <a href={href("jobs", { q: filter })} aria-current={filter === current ? "true" : undefined}>
      {name}
    </a>
  );
}
