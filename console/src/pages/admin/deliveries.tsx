/** The log of the deliveries of a hook, newest first: the state of each, and its last attempt. */

import { useEffect, useState } from "preact/hooks";
import { change, get } from "../../api/client";
import type { Schema } from "../../api/types";
import { present } from "../../api/values";
import { ActionDialog } from "../../components/action-dialog";
import { Badge, type Tone } from "../../components/badge";
import { SelectField } from "../../components/field";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { href, query, setQuery } from "../../state/router";
import { commandText } from "../../text/commands";
import { agoText, durationText, timeText } from "../../text/time";

type Delivery = Schema<"Delivery">;
type State = "" | Schema<"DeliveryState">;

const TONES: Record<Schema<"DeliveryState">, Tone> = { pending: "active", delivered: "good", failed: "bad" };
const STATES: readonly (readonly [State, string])[] = [
  ["", "all"],
  ["pending", "pending"],
  ["delivered", "delivered"],
  ["failed", "failed"],
];
const PATH = "/v1/projects/{name}/hooks/{hook}/deliveries";
const REDELIVER = "/v1/projects/{name}/hooks/{hook}/deliveries/{delivery}/redeliver";
const POLL_MS = 1_000;

export function Deliveries({ hook, changes }: { hook: Schema<"Hook">; changes: number }) {
  const state = (query.value.get("state") ?? "") as State;
  const values = { name: hook.project, hook: hook.id };
  const log = useResource(
    (signal) => get(PATH, { path: values, query: present({ state: state || undefined }), signal }),
    [hook.id, state, changes],
  );
  const [repeated, setRepeated] = useState<Delivery>();
  const isPending = (log.data.value?.deliveries ?? []).some((each) => each.state === "pending");
  useEffect(() => {
    if (!isPending) return;
    const timer = setInterval(log.refresh, POLL_MS);
    return () => clearInterval(timer);
  }, [isPending]);
  return (
    <section class="card" aria-labelledby="deliveries">
      <header class="admin-head">
        <h2 id="deliveries">Deliveries to {hook.name}</h2>
        <SelectField label="State" value={state} options={STATES} onChange={(chosen) => setQuery({ state: chosen })} />
      </header>
      <ResourceView resource={log} label="Loading the deliveries">
        {(data) =>
          data.deliveries.length === 0 ? (
            <EmptyState title="No deliveries">
              <p>
                The hook gets its first message when an event matches its filter. Send a test to check the receiver.
              </p>
            </EmptyState>
          ) : (
            <DeliveryTable deliveries={data.deliveries} onRepeat={setRepeated} />
          )
        }
      </ResourceView>
      {repeated && (
        <ActionDialog
          action={{
            title: "Deliver again",
            requests: [{ method: "post", path: REDELIVER, values: { ...values, delivery: repeated.id } }],
            commands: [commandText("regroup", "hooks", "redeliver", hook.project, hook.id, String(repeated.id))],
            run: (isDryRun) =>
              change("post", REDELIVER, {
                path: { ...values, delivery: repeated.id },
                query: { dry_run: isDryRun },
              }),
            done: "Delivers the message again",
          }}
          effect={() => (
            <p>
              {hook.name} gets the message <code>{repeated.message_id}</code> again, with the same id. A receiver that
              knows the id ignores it.
            </p>
          )}
          onClose={() => setRepeated(undefined)}
          onDone={log.refresh}
        />
      )}
    </section>
  );
}

function DeliveryTable(props: { deliveries: readonly Delivery[]; onRepeat: (delivery: Delivery) => void }) {
  return (
    <ShortTable
      label="Deliveries, newest first"
      rows={props.deliveries}
      rowKey={(delivery) => String(delivery.id)}
      columns={[
        { id: "id", label: "#", isNumber: true, cell: (delivery) => delivery.id },
        { id: "time", label: "Event", cell: (delivery) => timeText(delivery.created_at) },
        { id: "type", label: "Type", cell: (delivery) => delivery.type },
        { id: "job", label: "Job", cell: jobLink },
        {
          id: "state",
          label: "State",
          cell: (delivery) => <Badge tone={TONES[delivery.state]}>{delivery.state}</Badge>,
        },
        { id: "attempts", label: "Attempts", isNumber: true, cell: (delivery) => delivery.attempts },
        { id: "result", label: "Last attempt", cell: resultText },
        { id: "next", label: "Next attempt", cell: (delivery) => nextText(delivery) },
        {
          id: "of",
          label: "Repeats",
          cell: (delivery) => (delivery.redelivery_of ? `#${delivery.redelivery_of}` : ""),
        },
        {
          id: "again",
          label: "Change",
          cell: (delivery) => (
            <button type="button" aria-label={`Deliver ${delivery.id} again`} onClick={() => props.onRepeat(delivery)}>
              Deliver again
            </button>
          ),
        },
      ]}
    />
  );
}

function jobLink(delivery: Delivery) {
  return delivery.job_id === null ? "" : <a href={href(`jobs/${delivery.job_id}`)}>{delivery.job_name}</a>;
}

function nextText(delivery: Delivery): string {
  return delivery.next_attempt_at === null ? "" : agoText(delivery.next_attempt_at);
}

function resultText(delivery: Delivery): string {
  const took = delivery.duration_s === null ? "" : ` after ${durationText(delivery.duration_s)}`;
  if (delivery.status_code !== null)
    return `HTTP ${delivery.status_code}${took}${delivery.error && `: ${delivery.error}`}`;
  return delivery.error;
}
