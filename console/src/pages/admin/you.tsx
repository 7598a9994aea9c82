/** Your identity, with the roles and permissions that it has here. */

import { ShortTable } from "../../components/short-table";
import { Stat } from "../../components/stat";
import { EmptyState, Loading } from "../../components/states";
import { me } from "../../state/identity";
import { href } from "../../state/router";

const KINDS: Record<string, string> = {
  owner: "Owner of the server",
  user: "Person",
  service_account: "Service account",
};

export default function You() {
  const identity = me.value;
  if (identity === undefined) return <Loading label="Loading your identity" />;
  const everywhere = identity.everywhere ?? undefined;
  return (
    <>
      <section class="card stats" aria-label="Identity">
        <Stat label="Identity">{identity.subject}</Stat>
        <Stat label="Kind">{KINDS[identity.kind] ?? identity.kind}</Stat>
        <Stat label="Role in every project">{everywhere ?? "none"}</Stat>
        <Stat label="Operator of the cluster">{identity.is_operator ? "yes" : "no"}</Stat>
        <Stat label="Permissions in addition">{identity.permissions.join(", ") || "none"}</Stat>
      </section>
      <section class="card" aria-labelledby="roles">
        <h2 id="roles">Roles in projects</h2>
        {identity.memberships.length === 0 ? (
          <EmptyState title="You are a member of no single project">
            <p>
              {everywhere === undefined
                ? "An admin of a project adds you with `regroup members set`."
                : "Your role in every project applies."}
            </p>
          </EmptyState>
        ) : (
          <ShortTable
            label="Your roles"
            rows={identity.memberships}
            rowKey={(row) => row.project}
            columns={[
              { id: "project", label: "Project", cell: (row) => row.project },
              { id: "role", label: "Role", cell: (row) => row.role },
              { id: "more", label: "In addition", cell: (row) => row.permissions.join(", ") },
            ]}
          />
        )}
        <p class="quiet">
          This browser has a session; <a href={href("admin/sessions")}>Sessions</a> ends it. Programs use{" "}
          <a href={href("admin/tokens")}>tokens</a>.
        </p>
      </section>
    </>
  );
}
