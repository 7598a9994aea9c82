/** Hooks of a project: what they tell whom, and the log of their deliveries. */

import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { Badge } from "../../components/badge";
import { ProjectField } from "../../components/project-select";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { ShownOnce } from "../../components/shown-once";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { href, query } from "../../state/router";
import { timeText } from "../../text/time";
import { Deliveries } from "./deliveries";
import { type HookChange, HookChangeDialog } from "./hook-changes";
import { NewHookDialog } from "./new-hook";

type Hook = Schema<"Hook">;

const BUTTONS: readonly (readonly [HookChange, string])[] = [
  ["rotate", "Rotate"],
  ["test", "Test"],
  ["switch", ""],
  ["delete", "Delete"],
];

export default function Hooks() {
  const project = query.value.get("project") || "default";
  const hooks = useResource(
    (signal) => get("/v1/projects/{name}/hooks", { path: { name: project }, signal }),
    [project],
  );
  const [isNew, setNew] = useState(false);
  const [chosen, setChosen] = useState<{ hook: Hook; kind: HookChange }>();
  const [issued, setIssued] = useState<Schema<"IssuedHook">>();
  const [changes, setChanges] = useState(0);
  const listed = hooks.data.value?.hooks ?? [];
  const shown = listed.find((each) => each.id === query.value.get("hook")) ?? listed[0];
  const after = (found?: Schema<"IssuedHook">) => {
    if (found?.secret) setIssued(found);
    setChanges(changes + 1);
    hooks.refresh();
  };
  return (
    <>
      <div class="filters">
        <ProjectField usual="default" />
      </div>
      <section class="card" aria-labelledby="hooks">
        <header class="admin-head">
          <h2 id="hooks">Hooks of {project}</h2>
          <button type="button" class="primary" onClick={() => setNew(true)}>
            New hook
          </button>
        </header>
        <ResourceView resource={hooks} label="Loading the hooks">
          {(data) =>
            data.hooks.length === 0 ? (
              <EmptyState title={`${project} has no hooks`}>
                <p>A hook tells a program, a chat or a mailbox when a job fails, is held or ends.</p>
              </EmptyState>
            ) : (
              <HookTable hooks={data.hooks} shown={shown?.id} onChange={(hook, kind) => setChosen({ hook, kind })} />
            )
          }
        </ResourceView>
      </section>
      {shown && <Deliveries key={shown.id} hook={shown} changes={changes} />}
      {isNew && <NewHookDialog project={project} onClose={() => setNew(false)} onDone={after} />}
      {chosen && (
        <HookChangeDialog hook={chosen.hook} kind={chosen.kind} onClose={() => setChosen(undefined)} onDone={after} />
      )}
      {issued?.secret && (
        <ShownOnce
          title={`Secret of ${issued.name}`}
          value={issued.secret}
          note="Copy the secret to the receiver now. The server never shows it again."
          onClose={() => setIssued(undefined)}
        />
      )}
    </>
  );
}

function HookTable(props: {
  hooks: readonly Hook[];
  shown: string | undefined;
  onChange: (hook: Hook, kind: HookChange) => void;
}) {
  return (
    <ShortTable
      label="Hooks of the project"
      rows={props.hooks}
      rowKey={(hook) => hook.id}
      columns={[
        { id: "name", label: "Name", cell: (hook) => <LogLink hook={hook} isShown={hook.id === props.shown} /> },
        { id: "kind", label: "Kind", cell: (hook) => hook.kind },
        { id: "to", label: "Receiver", cell: (hook) => hook.url ?? hook.recipients.join(", ") },
        { id: "events", label: "Events", cell: eventsText },
        {
          id: "state",
          label: "State",
          cell: (hook) =>
            hook.is_enabled ? <Badge tone="good">enabled</Badge> : <Badge tone="neutral">disabled</Badge>,
        },
        { id: "former", label: "Former secret", cell: formerText },
        {
          id: "change",
          label: "Change",
          cell: (hook) => (
            <span class="row">
              {BUTTONS.map(([kind, word]) => {
                const text = word || (hook.is_enabled ? "Disable" : "Enable");
                return (
                  <button
                    key={kind}
                    type="button"
                    class={kind === "delete" ? "danger" : ""}
                    aria-label={`${text} ${hook.name}`}
                    onClick={() => props.onChange(hook, kind)}
                  >
                    {text}
                  </button>
                );
              })}
            </span>
          ),
        },
      ]}
    />
  );
}

function LogLink({ hook, isShown }: { hook: Hook; isShown: boolean }) {
  const address = href("admin/hooks", { project: hook.project, hook: hook.id });
  return (
    <a href={address} aria-current={isShown ? "true" : undefined} title="Show its deliveries">
      {hook.name}
    </a>
  );
}

function eventsText(hook: Hook): string {
  const labels = Object.entries(hook.labels).map(([key, value]) => `${key}=${value}`);
  return [...hook.events, ...labels].join(", ");
}

function formerText(hook: Hook): string {
  return hook.former_until && hook.former_until > Date.now() / 1000 ? `signs until ${timeText(hook.former_until)}` : "";
}
