/** Secrets of a project: their names and use. No page shows a value. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { TextField } from "../../components/field";
import { ProjectField } from "../../components/project-select";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { query } from "../../state/router";
import { commandText } from "../../text/commands";
import { agoText, dayText } from "../../text/time";

type Secret = Schema<"Secret">;

const PATH = "/v1/projects/{name}/secrets/{secret}";

export default function Secrets() {
  const project = query.value.get("project") || "default";
  const load = (signal: AbortSignal) => get("/v1/projects/{name}/secrets", { path: { name: project }, signal });
  const secrets = useResource(load, [project]);
  const [set, setSet] = useState<string>();
  const [deleted, setDeleted] = useState<Secret>();
  return (
    <>
      <div class="filters">
        <ProjectField usual="default" />
      </div>
      <section class="card" aria-labelledby="secrets">
        <header class="admin-head">
          <h2 id="secrets">Secrets of {project}</h2>
          <button type="button" class="primary" onClick={() => setSet("")}>
            Set secret
          </button>
        </header>
        <ResourceView resource={secrets} label="Loading the names of the secrets">
          {(data) =>
            data.secrets.length === 0 ? (
              <EmptyState title={`${project} has no secrets`}>
                <p>A job reads secrets as environment variables. The server encrypts them, and never shows a value.</p>
              </EmptyState>
            ) : (
              <SecretTable secrets={data.secrets} onSet={setSet} onDelete={setDeleted} />
            )
          }
        </ResourceView>
      </section>
      {set !== undefined && (
        <SetDialog project={project} name={set} onClose={() => setSet(undefined)} onDone={secrets.refresh} />
      )}
      {deleted && <DeleteDialog secret={deleted} onClose={() => setDeleted(undefined)} onDone={secrets.refresh} />}
    </>
  );
}

function SecretTable(props: {
  secrets: readonly Secret[];
  onSet: (name: string) => void;
  onDelete: (secret: Secret) => void;
}) {
  return (
    <ShortTable
      label="Secrets of the project"
      rows={props.secrets}
      rowKey={(secret) => secret.name}
      columns={[
        { id: "name", label: "Name", cell: (secret) => <code>{secret.name}</code> },
        { id: "version", label: "Version", isNumber: true, cell: (secret) => secret.version },
        { id: "updated", label: "Set", cell: (secret) => `${dayText(secret.updated_at)} by ${secret.updated_by}` },
        { id: "used", label: "Last use", cell: (secret) => (secret.used_at ? agoText(secret.used_at) : "never") },
        {
          id: "change",
          label: "Change",
          cell: (secret) => (
            <span class="row">
              <button type="button" aria-label={`Replace ${secret.name}`} onClick={() => props.onSet(secret.name)}>
                Replace
              </button>
              <button
                type="button"
                class="danger"
                aria-label={`Delete ${secret.name}`}
                onClick={() => props.onDelete(secret)}
              >
                Delete
              </button>
            </span>
          ),
        },
      ]}
    />
  );
}

function SetDialog(props: { project: string; name: string; onClose: () => void; onDone: () => void }) {
  const { project } = props;
  const [name, setName] = useState(props.name);
  const [value, setValue] = useState("");
  const shown = name || "NAME";
  const hidden = { value: "…".repeat(Math.min(value.length, 20)) };
  return (
    <ActionDialog
      action={{
        title: props.name === "" ? "Store secret" : "Replace secret",
        // The command that is shown never has the value.
        requests: [{ method: "put", path: PATH, values: { name: project, secret: shown }, body: hidden }],
        commands: [commandText("regroup", "secret", "set", shown, "--project", project)],
        run: async (isDryRun) => {
          if (name === "" || value === "") throw new Problem(0, "incomplete", "give the secret a name and a value");
          const path = { name: project, secret: name };
          return change("put", PATH, { path, body: { value }, query: { dry_run: isDryRun } });
        },
        done: (found) => `Stored ${found.name}, version ${found.version}`,
      }}
      effect={(found) => (
        <p>
          Jobs of {project} that start from now on and name <code>{found.name}</code> get version {found.version}.
          Nobody can read the value again.
        </p>
      )}
      onClose={props.onClose}
      onDone={props.onDone}
    >
      <div class="fields">
        {props.name === "" && <TextField label="Name" value={name} onInput={setName} placeholder="HF_TOKEN" />}
        <TextField label="Value" type="password" value={value} onInput={setValue} />
      </div>
    </ActionDialog>
  );
}

function DeleteDialog({ secret, onClose, onDone }: { secret: Secret; onClose: () => void; onDone: () => void }) {
  const values = { name: secret.project, secret: secret.name };
  return (
    <ActionDialog
      action={{
        title: "Delete secret",
        isDangerous: true,
        requests: [{ method: "delete", path: PATH, values }],
        commands: [commandText("regroup", "secret", "delete", secret.name, "--project", secret.project)],
        run: async (isDryRun) => {
          await change("delete", PATH, { path: values, query: { dry_run: isDryRun } });
          return secret;
        },
        done: `Deleted ${secret.name}`,
      }}
      effect={() => (
        <p>
          <code>{secret.name}</code> is deleted. Jobs that name it can no longer start or recover.
        </p>
      )}
      onClose={onClose}
      onDone={onDone}
    />
  );
}
