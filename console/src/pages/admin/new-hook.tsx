/** A new hook: the receiver, and the events that it gets. */

import { useState } from "preact/hooks";
import { change } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { ActionDialog } from "../../components/action-dialog";
import { SelectField, TextField } from "../../components/field";
import { commandText } from "../../text/commands";

type Kind = Schema<"HookKind">;

const KINDS: readonly (readonly [Kind, string])[] = [
  ["cloudevents", "a program (CloudEvents)"],
  ["slack", "Slack"],
  ["teams", "Microsoft Teams"],
  ["email", "e-mail"],
];
const OPTIONS: Record<Kind, string> = { cloudevents: "--url", slack: "--slack", teams: "--teams", email: "--email" };
const USUAL_EVENTS = "state:SUCCEEDED state:FAILED state:CANCELLED held";
const PATH = "/v1/projects/{name}/hooks";

export function NewHookDialog(props: {
  project: string;
  onClose: () => void;
  onDone: (issued: Schema<"IssuedHook">) => void;
}) {
  const { project, onClose, onDone } = props;
  const [name, setName] = useState("");
  const [kind, setKind] = useState<Kind>("cloudevents");
  const [receiver, setReceiver] = useState("");
  const [events, setEvents] = useState(USUAL_EVENTS);
  const receivers = wordsOf(receiver);
  const chosen = wordsOf(events);
  const isMail = kind === "email";
  const to = { recipients: isMail ? receivers : [], url: isMail ? null : receiver };
  const body = { name, kind, ...to, events: chosen, labels: {}, is_enabled: true };
  const options = [
    ...(isMail ? receivers : [receiver]).flatMap((each) => [OPTIONS[kind], each]),
    ...chosen.flatMap((each) => ["--event", each]),
  ];
  return (
    <ActionDialog
      action={{
        title: "Create hook",
        requests: [{ method: "post", path: PATH, values: { name: project }, body }],
        commands: [commandText("regroup", "hooks", "create", project, name || "NAME", ...options)],
        run: async (isDryRun) => {
          if (name === "" || receiver === "") throw new Problem(0, "incomplete", "name the hook and its receiver");
          return change("post", PATH, { path: { name: project }, body, query: { dry_run: isDryRun } });
        },
        done: (found) => `Created ${found.name}`,
      }}
      effect={(found) => (
        <p>
          {found.url ?? found.recipients.join(", ")} gets the events {found.events.join(", ")} of the jobs of {project}.
          {kind === "cloudevents" && " The secret of its signatures is shown once."}
        </p>
      )}
      onClose={onClose}
      onDone={onDone}
    >
      <div class="fields">
        <TextField label="Name" value={name} onInput={setName} />
        <SelectField label="Kind" value={kind} options={KINDS} onChange={setKind} />
        <TextField
          label={kind === "email" ? "Addresses" : "URL"}
          value={receiver}
          onInput={setReceiver}
          placeholder={kind === "email" ? "team@example.com" : "https://"}
        />
        <TextField label="Events" value={events} onInput={setEvents} note="Types such as incident, or state:FAILED" />
      </div>
    </ActionDialog>
  );
}

function wordsOf(text: string): string[] {
  return text.split(/[\s,]+/).filter((each) => each !== "");
}
