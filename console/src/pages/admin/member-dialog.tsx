/** A member of a project: a new one, or another role of one. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { SelectField, TextField } from "../../components/field";
import { useResource } from "../../state/resource";
import { commandText } from "../../text/commands";

type Role = Schema<"Role">;

const ROLES: readonly (readonly [Role, string])[] = [
  ["viewer", "viewer: sees jobs and the project"],
  ["editor", "editor: also submits and changes jobs, reads logs"],
  ["admin", "admin: also manages members, hooks and secrets"],
];

export function MemberDialog(props: {
  project: string;
  member: Schema<"Member"> | undefined;
  onClose: () => void;
  onDone: () => void;
}) {
  const { project, member } = props;
  const [subject, setSubject] = useState(member?.subject ?? "");
  const [role, setRole] = useState<Role>(member?.role ?? "viewer");
  const [more, setMore] = useState((member?.permissions ?? []).join(" "));
  const identities = useResource((signal) => get("/v1/identities", { signal }), []);
  const permissions = more.split(/[\s,]+/).filter((each) => each !== "");
  const path = "/v1/projects/{name}/members/{subject}";
  const values = { name: project, subject: subject || "NAME" };
  const body = { role, permissions };
  const options = permissions.flatMap((each) => ["--permission", each]);
  return (
    <ActionDialog
      action={{
        title: member === undefined ? "Add member to project" : "Change role",
        requests: [{ method: "put", path, values, body }],
        commands: [commandText("regroup", "members", "set", project, values.subject, role, ...options)],
        run: async (isDryRun) => {
          if (subject === "") throw new Problem(0, "incomplete", "name the identity, or group:NAME for a group");
          return change("put", path, { path: values, body, query: { dry_run: isDryRun } });
        },
        done: (found) => `${found.subject} is ${found.role} of ${found.project}`,
      }}
      effect={(found) => (
        <p>
          <b>{found.subject}</b> becomes {found.role} of {found.project} at once
          {found.permissions.length > 0 && `, with ${found.permissions.join(", ")} in addition`}.
          {member !== undefined && member.role !== found.role && ` Now: ${member.role}.`}
        </p>
      )}
      onClose={props.onClose}
      onDone={props.onDone}
    >
      <div class="fields">
        {member === undefined && (
          <TextField
            label="Identity"
            value={subject}
            onInput={setSubject}
            options={(identities.data.value?.identities ?? []).map((each) => each.subject)}
          />
        )}
        <SelectField label="Role" value={role} options={ROLES} onChange={setRole} />
        <TextField
          label="Permissions in addition"
          value={more}
          onInput={setMore}
          placeholder="exec logs secrets:NAME"
        />
      </div>
    </ActionDialog>
  );
}
