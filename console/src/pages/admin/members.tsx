/** Members of a project with their roles, and the identities of the server. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { ProjectField } from "../../components/project-select";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { query } from "../../state/router";
import { commandText } from "../../text/commands";
import { dayText } from "../../text/time";
import { Identities } from "./identities";
import { MemberDialog } from "./member-dialog";

type Member = Schema<"Member">;

export default function Members() {
  const project = query.value.get("project") || "default";
  const load = (signal: AbortSignal) => get("/v1/projects/{name}/members", { path: { name: project }, signal });
  const members = useResource(load, [project]);
  const [edited, setEdited] = useState<Member | "new">();
  const [removed, setRemoved] = useState<Member>();
  return (
    <>
      <div class="filters">
        <ProjectField usual="default" />
      </div>
      <section class="card" aria-labelledby="members">
        <header class="admin-head">
          <h2 id="members">Members of {project}</h2>
          <button type="button" class="primary" onClick={() => setEdited("new")}>
            Add member
          </button>
        </header>
        <ResourceView resource={members} label="Loading the members">
          {(data) =>
            data.members.length === 0 ? (
              <EmptyState title={`${project} has no members`}>
                <p>Operators see all projects. Add a member, so that others see this one.</p>
              </EmptyState>
            ) : (
              <ShortTable
                label="Members of the project"
                rows={data.members}
                rowKey={(member) => member.subject}
                columns={[
                  { id: "subject", label: "Member", cell: (member) => member.subject },
                  { id: "role", label: "Role", cell: (member) => member.role },
                  { id: "more", label: "In addition", cell: (member) => member.permissions.join(", ") },
                  {
                    id: "since",
                    label: "Changed",
                    cell: (member) => `${dayText(member.created_at)} by ${member.created_by}`,
                  },
                  {
                    id: "change",
                    label: "Change",
                    cell: (member) => (
                      <span class="row">
                        <button
                          type="button"
                          aria-label={`Change the role of ${member.subject}`}
                          onClick={() => setEdited(member)}
                        >
                          Role
                        </button>
                        <button
                          type="button"
                          class="danger"
                          aria-label={`Remove ${member.subject}`}
                          onClick={() => setRemoved(member)}
                        >
                          Remove
                        </button>
                      </span>
                    ),
                  },
                ]}
              />
            )
          }
        </ResourceView>
      </section>
      <Identities />
      {edited && (
        <MemberDialog
          project={project}
          member={edited === "new" ? undefined : edited}
          onClose={() => setEdited(undefined)}
          onDone={members.refresh}
        />
      )}
      {removed && <RemoveDialog member={removed} onClose={() => setRemoved(undefined)} onDone={members.refresh} />}
    </>
  );
}

function RemoveDialog({ member, onClose, onDone }: { member: Member; onClose: () => void; onDone: () => void }) {
  const { project, subject } = member;
  const values = { name: project, subject };
  const path = "/v1/projects/{name}/members/{subject}";
  return (
    <ActionDialog
      action={{
        title: "Remove member",
        isDangerous: true,
        requests: [{ method: "delete", path, values }],
        commands: [commandText("regroup", "members", "remove", project, subject)],
        run: async (isDryRun) => {
          await change("delete", path, { path: values, query: { dry_run: isDryRun } });
          return member;
        },
        done: `Removed ${subject} from ${project}`,
      }}
      effect={() => (
        <p>
          <b>{subject}</b> no longer sees the project {project}, at once. Jobs of {subject} continue.
        </p>
      )}
      onClose={onClose}
      onDone={onDone}
    />
  );
}
