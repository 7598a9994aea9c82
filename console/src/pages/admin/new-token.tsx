/** A new token: for whom, with which limits, for how long. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { present } from "../../api/values";
import { ActionDialog } from "../../components/action-dialog";
import { SelectField, TextField } from "../../components/field";
import { useProjects } from "../../components/project-select";
import { me } from "../../state/identity";
import { useResource } from "../../state/resource";
import { commandText } from "../../text/commands";
import { dayText } from "../../text/time";

type Issued = Schema<"IssuedToken">;
type RoleLimit = "" | Schema<"Role">;

const ROLES: readonly (readonly [RoleLimit, string])[] = [
  ["", "those of its identity"],
  ["viewer", "viewer"],
  ["editor", "editor"],
  ["admin", "admin"],
];
const LIVES = [
  ["1d", "1 day"],
  ["7d", "7 days"],
  ["30d", "30 days"],
  ["90d", "90 days"],
  ["365d", "1 year"],
] as const;
const DAY_S = 86_400;

export function NewTokenDialog({ onClose, onDone }: { onClose: () => void; onDone: (issued: Issued) => void }) {
  const own = me.value?.kind === "owner" ? "" : (me.value?.subject ?? "");
  const [name, setName] = useState(`console ${dayText(Date.now() / 1000)}`);
  const [subject, setSubject] = useState(own);
  const [project, setProject] = useState("");
  const [role, setRole] = useState<RoleLimit>("");
  const [life, setLife] = useState<(typeof LIVES)[number][0]>("90d");
  const identities = useResource((signal) => get("/v1/identities", { signal }), []);
  const projects = useProjects();
  const body = {
    name,
    expires_in_s: Number.parseInt(life, 10) * DAY_S,
    ...present({ subject, project, role: role || undefined }),
  };
  const run = (isDryRun: boolean): Promise<Issued> => {
    if (name.trim() === "") throw new Problem(0, "incomplete", "the token needs a name");
    if (subject === "" && me.value?.kind === "owner") {
      throw new Problem(0, "incomplete", "choose the identity that the token proves; the owner's own token is a file");
    }
    return change("post", "/v1/tokens", { body, query: { dry_run: isDryRun } });
  };
  const options = ["token", "create", name, subject && "--for", subject, project && "--project", project];
  return (
    <ActionDialog
      action={{
        title: "Create token",
        requests: [{ method: "post", path: "/v1/tokens", body }],
        commands: [commandText("regroup", ...options, role && "--role", role, "--expires", life)],
        run: async (isDryRun) => run(isDryRun),
        done: "Created a token",
      }}
      effect={(token) => (
        <p>
          A token of <b>{token.subject}</b>, valid until {dayText(token.expires_at ?? 0)}
          {token.project ? ` in the project ${token.project} only` : ""}
          {token.role ? `, with the role ${token.role} at most` : ", with the roles of its identity"}. Its value is
          shown once.
        </p>
      )}
      onClose={onClose}
      onDone={onDone}
    >
      <div class="fields">
        <TextField label="Name" value={name} onInput={setName} />
        <TextField
          label="Identity"
          value={subject}
          onInput={setSubject}
          options={(identities.data.value?.identities ?? []).map((each) => each.subject)}
        />
        <TextField label="Only in project" value={project} onInput={setProject} options={projects} placeholder="all" />
        <SelectField label="Highest role" value={role} options={ROLES} onChange={setRole} />
        <SelectField label="Valid for" value={life} options={LIVES} onChange={setLife} />
      </div>
    </ActionDialog>
  );
}
