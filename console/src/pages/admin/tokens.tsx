/** Tokens for programs: create one, see their last use, revoke. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { Badge } from "../../components/badge";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { ShownOnce } from "../../components/shown-once";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { commandText } from "../../text/commands";
import { agoText, dayText } from "../../text/time";
import { NewTokenDialog } from "./new-token";

type Token = Schema<"Token">;

export default function Tokens() {
  const tokens = useResource((signal) => get("/v1/tokens", { signal }), []);
  const [isNew, setNew] = useState(false);
  const [revoked, setRevoked] = useState<Token>();
  const [issued, setIssued] = useState<Schema<"IssuedToken">>();
  return (
    <>
      <section class="card" aria-labelledby="tokens">
        <header class="admin-head">
          <h2 id="tokens">Tokens</h2>
          <button type="button" class="primary" onClick={() => setNew(true)}>
            New token
          </button>
        </header>
        <ResourceView resource={tokens} label="Loading the tokens">
          {(data) => <TokenTable tokens={data.tokens} onRevoke={setRevoked} />}
        </ResourceView>
      </section>
      {isNew && (
        <NewTokenDialog
          onClose={() => setNew(false)}
          onDone={(token) => {
            setIssued(token);
            tokens.refresh();
          }}
        />
      )}
      {issued && (
        <ShownOnce
          title={`Token ${issued.name} of ${issued.subject}`}
          value={issued.value}
          note="Copy the token now. The server stores only a digest, and never shows it again."
          onClose={() => setIssued(undefined)}
        />
      )}
      {revoked && <RevokeDialog token={revoked} onClose={() => setRevoked(undefined)} onDone={tokens.refresh} />}
    </>
  );
}

function TokenTable({ tokens, onRevoke }: { tokens: readonly Token[]; onRevoke: (token: Token) => void }) {
  if (tokens.length === 0) {
    return (
      <EmptyState title="No tokens">
        <p>A program needs a token. Create one for yourself or for an identity that you manage.</p>
      </EmptyState>
    );
  }
  return (
    <ShortTable
      label="Tokens, the newest first"
      rows={tokens}
      rowKey={(token) => token.id}
      columns={[
        { id: "name", label: "Name", cell: (token) => token.name || token.id },
        { id: "subject", label: "Identity", cell: (token) => token.subject },
        { id: "state", label: "State", cell: (token) => <TokenState token={token} /> },
        { id: "limits", label: "Limits", cell: limitsText },
        { id: "created", label: "Created", cell: (token) => `${dayText(token.created_at)} by ${token.created_by}` },
        { id: "expires", label: "Expires", cell: (token) => (token.expires_at ? dayText(token.expires_at) : "never") },
        { id: "used", label: "Last use", cell: (token) => (token.used_at ? agoText(token.used_at) : "never") },
        {
          id: "revoke",
          label: "Change",
          cell: (token) =>
            token.revoked_at === null && (
              <button
                type="button"
                class="danger"
                aria-label={`Revoke ${token.name || token.id}`}
                onClick={() => onRevoke(token)}
              >
                Revoke
              </button>
            ),
        },
      ]}
    />
  );
}

function TokenState({ token }: { token: Token }) {
  if (token.revoked_at !== null) return <Badge tone="neutral">revoked</Badge>;
  if (token.expires_at !== null && token.expires_at < Date.now() / 1000) return <Badge tone="neutral">expired</Badge>;
  return <Badge tone="good">valid</Badge>;
}

function limitsText(token: Token): string {
  const found = [token.project && `project ${token.project}`, token.role && `at most ${token.role}`].filter(Boolean);
  return found.length === 0 ? "those of its identity" : found.join(", ");
}

function RevokeDialog({ token, onClose, onDone }: { token: Token; onClose: () => void; onDone: () => void }) {
  const request = { method: "delete", path: "/v1/tokens/{token}", values: { token: token.id } };
  return (
    <ActionDialog
      action={{
        title: "Revoke token",
        isDangerous: true,
        requests: [request],
        commands: [commandText("regroup", "token", "revoke", token.id)],
        run: (isDryRun) =>
          change("delete", "/v1/tokens/{token}", { path: { token: token.id }, query: { dry_run: isDryRun } }),
        done: `Revoked the token ${token.name}`,
      }}
      effect={() => (
        <p>
          Requests with the token <b>{token.name || token.id}</b> of {token.subject} are refused at once. Sessions of
          browsers that signed in with it end. Jobs continue.
        </p>
      )}
      onClose={onClose}
      onDone={onDone}
    />
  );
}
