/** Sessions of browsers: who is signed in from where. */

import { useState } from "preact/hooks";
import { change, get } from "../../api/client";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { loadIdentity, me } from "../../state/identity";
import { useResource } from "../../state/resource";
import { commandText } from "../../text/commands";
import { agoText, timeText } from "../../text/time";

type Session = Schema<"Session">;

export default function Sessions() {
  const sessions = useResource((signal) => get("/v1/sessions", { signal }), []);
  const [ended, setEnded] = useState<Session>();
  const after = () => {
    if (ended?.id === me.value?.session_id) void loadIdentity();
    else sessions.refresh();
  };
  return (
    <section class="card" aria-labelledby="sessions">
      <h2 id="sessions">Sessions of browsers</h2>
      <ResourceView resource={sessions} label="Loading the sessions">
        {(data) =>
          data.sessions.length === 0 ? (
            <EmptyState title="No browser is signed in">
              <p>`regroup console` signs a browser in.</p>
            </EmptyState>
          ) : (
            <ShortTable
              label="Sessions, the newest first"
              rows={data.sessions}
              rowKey={(session) => session.id}
              columns={[
                { id: "subject", label: "Identity", cell: (session) => session.subject },
                { id: "agent", label: "Browser", cell: (session) => browserText(session.agent) },
                { id: "address", label: "Address", cell: (session) => session.address },
                { id: "created", label: "Signed in", cell: (session) => timeText(session.created_at) },
                { id: "used", label: "Last use", cell: (session) => agoText(session.used_at ?? session.created_at) },
                { id: "expires", label: "Ends", cell: (session) => agoText(session.expires_at) },
                {
                  id: "end",
                  label: "Change",
                  cell: (session) => (
                    <>
                      <button
                        type="button"
                        class="danger"
                        aria-label={`End the session ${session.id}`}
                        onClick={() => setEnded(session)}
                      >
                        End
                      </button>
                      {session.id === me.value?.session_id && <span class="quiet"> this browser</span>}
                    </>
                  ),
                },
              ]}
            />
          )
        }
      </ResourceView>
      {ended && (
        <ActionDialog
          action={{
            title: "End session",
            isDangerous: true,
            requests: [{ method: "delete", path: "/v1/sessions/{session}", values: { session: ended.id } }],
            commands: [commandText("regroup", "sessions", "revoke", ended.id)],
            run: async (isDryRun) => {
              const request = { path: { session: ended.id }, query: { dry_run: isDryRun } };
              await change("delete", "/v1/sessions/{session}", request);
              return ended;
            },
            done: "Ended the session",
          }}
          effect={(session) => (
            <p>
              The browser of {session.subject} at {session.address} is signed out at once.
              {session.id === me.value?.session_id && " This is your own browser."}
            </p>
          )}
          onClose={() => setEnded(undefined)}
          onDone={after}
        />
      )}
    </section>
  );
}

/** Return the name of a browser and of its system, of what it says about itself. */
export function browserText(agent: string): string {
  const browser = /(Firefox|Edg|OPR|HeadlessChrome|Chrome|Safari)\/(\d+)/.exec(agent);
  const system = /(Windows|Mac OS X|Android|iPhone|Linux)/.exec(agent);
  if (browser === null) return agent.slice(0, 40);
  return [`${browser[1]} ${browser[2]}`, system?.[1]].filter(Boolean).join(", ");
}
