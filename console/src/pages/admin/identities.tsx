/** People and service accounts of the server. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { Badge } from "../../components/badge";
import { TextField } from "../../components/field";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { commandText } from "../../text/commands";
import { dayText } from "../../text/time";

type Identity = Schema<"Identity">;

export function Identities() {
  const identities = useResource((signal) => get("/v1/identities", { signal }), []);
  const [isNew, setNew] = useState(false);
  const [switched, setSwitched] = useState<Identity>();
  return (
    <section class="card" aria-labelledby="identities">
      <header class="admin-head">
        <h2 id="identities">Identities</h2>
        <button type="button" onClick={() => setNew(true)}>
          New identity
        </button>
      </header>
      <ResourceView resource={identities} label="Loading the identities">
        {(data) =>
          data.identities.length === 0 ? (
            <EmptyState title="No identities">
              <p>A person or a service account needs an identity before it can be a member or have a token.</p>
            </EmptyState>
          ) : (
            <ShortTable
              label="People and service accounts"
              rows={data.identities}
              rowKey={(identity) => identity.subject}
              columns={[
                { id: "subject", label: "Name", cell: (each) => each.subject },
                { id: "kind", label: "Kind", cell: kindText },
                { id: "operator", label: "Operator", cell: (each) => (each.is_operator ? "yes" : "no") },
                { id: "more", label: "In addition", cell: (each) => each.permissions.join(", ") },
                {
                  id: "created",
                  label: "Created",
                  cell: (each) => `${dayText(each.created_at)} by ${each.created_by}`,
                },
                {
                  id: "state",
                  label: "State",
                  cell: (each) =>
                    each.disabled_at === null ? <Badge tone="good">enabled</Badge> : <Badge tone="bad">disabled</Badge>,
                },
                {
                  id: "change",
                  label: "Change",
                  cell: (each) => (
                    <button
                      type="button"
                      aria-label={`${each.disabled_at === null ? "Disable" : "Enable"} ${each.subject}`}
                      onClick={() => setSwitched(each)}
                    >
                      {each.disabled_at === null ? "Disable" : "Enable"}
                    </button>
                  ),
                },
              ]}
            />
          )
        }
      </ResourceView>
      {isNew && <NewIdentity onClose={() => setNew(false)} onDone={identities.refresh} />}
      {switched && (
        <SwitchDialog identity={switched} onClose={() => setSwitched(undefined)} onDone={identities.refresh} />
      )}
    </section>
  );
}

function kindText(identity: Identity): string {
  return identity.kind === "user" ? "person" : `service account${identity.project ? ` of ${identity.project}` : ""}`;
}

function NewIdentity({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [subject, setSubject] = useState("");
  const body = { subject, kind: "user" as const, is_operator: false, permissions: [] };
  return (
    <ActionDialog
      action={{
        title: "Create identity",
        requests: [{ method: "post", path: "/v1/identities", body }],
        commands: [commandText("regroup", "identities", "create", subject || "NAME")],
        run: async (isDryRun) => {
          if (subject === "") throw new Problem(0, "incomplete", "name the person, for example by an e-mail address");
          return change("post", "/v1/identities", { body, query: { dry_run: isDryRun } });
        },
        done: (found) => `Created ${found.subject}`,
      }}
      effect={(found) => <p>The person {found.subject} can become a member of projects and have tokens.</p>}
      onClose={onClose}
      onDone={onDone}
    >
      <TextField label="Name of the person" value={subject} onInput={setSubject} />
    </ActionDialog>
  );
}

function SwitchDialog({ identity, onClose, onDone }: { identity: Identity; onClose: () => void; onDone: () => void }) {
  const { subject } = identity;
  const disabled = identity.disabled_at === null;
  const path = "/v1/identities/{subject}";
  return (
    <ActionDialog
      action={{
        title: disabled ? "Disable identity" : "Enable identity",
        isDangerous: disabled,
        requests: [{ method: "patch", path, values: { subject }, body: { disabled } }],
        commands: [commandText("regroup", "identities", disabled ? "disable" : "enable", subject)],
        run: (isDryRun) =>
          change("patch", path, { path: { subject }, body: { disabled }, query: { dry_run: isDryRun } }),
        done: `${disabled ? "Disabled" : "Enabled"} ${subject}`,
      }}
      effect={() => (
        <p>
          {disabled
            ? `All tokens of ${subject} are refused at once, and its browsers are signed out. Its jobs continue.`
            : `The tokens of ${subject} are accepted again.`}
        </p>
      )}
      onClose={onClose}
      onDone={onDone}
    />
  );
}
