/** Changes of one hook: rotate its secret, test it, enable or disable it, delete it. */

import { change } from "../../api/client";
import type { Schema } from "../../api/types";
import { type Action, ActionDialog } from "../../components/action-dialog";
import { commandText } from "../../text/commands";

type Hook = Schema<"Hook">;
type Issued = Schema<"IssuedHook">;

export type HookChange = "rotate" | "test" | "switch" | "delete";

const PATH = "/v1/projects/{name}/hooks/{hook}";
const ROTATE = "/v1/projects/{name}/hooks/{hook}/rotate";
const TEST = "/v1/projects/{name}/hooks/{hook}/test";

export function HookChangeDialog(props: {
  hook: Hook;
  kind: HookChange;
  onClose: () => void;
  onDone: (issued?: Issued) => void;
}) {
  const { hook, kind, onClose, onDone } = props;
  const [action, effect] = CHANGES[kind](hook);
  return (
    <ActionDialog
      action={action}
      effect={() => <p>{effect}</p>}
      onClose={onClose}
      onDone={(found) => onDone(found ?? undefined)}
    />
  );
}

type Described = [Action<Issued | null>, string];

const CHANGES: Record<HookChange, (hook: Hook) => Described> = {
  rotate: (hook) => {
    const values = { name: hook.project, hook: hook.id };
    return [
      {
        title: "Rotate secret",
        requests: [{ method: "post", path: ROTATE, values }],
        commands: [commandText("regroup", "hooks", "rotate", hook.project, hook.id)],
        run: (isDryRun) => change("post", ROTATE, { path: values, query: { dry_run: isDryRun } }),
        done: `Rotated the secret of ${hook.name}`,
      },
      `The server makes a new secret for ${hook.name} and shows it once. For a day, each notification has the ` +
        "signatures of both secrets, so the receiver loses none.",
    ];
  },
  test: (hook) => {
    const values = { name: hook.project, hook: hook.id };
    return [
      {
        title: "Send test",
        requests: [{ method: "post", path: TEST, values }],
        commands: [commandText("regroup", "hooks", "test", hook.project, hook.id)],
        run: async (isDryRun) => {
          await change("post", TEST, { path: values, query: { dry_run: isDryRun } });
          return null;
        },
        done: `Sends a test to ${hook.name}`,
      },
      `${hook.url ?? hook.recipients.join(", ")} gets a test message. Its result is in the log about a second later.`,
    ];
  },
  switch: (hook) => {
    const values = { name: hook.project, hook: hook.id };
    const body = { is_enabled: !hook.is_enabled };
    const verb = hook.is_enabled ? "disable" : "enable";
    return [
      {
        title: hook.is_enabled ? "Disable hook" : "Enable hook",
        requests: [{ method: "patch", path: PATH, values, body }],
        commands: [commandText("regroup", "hooks", verb, hook.project, hook.id)],
        run: async (isDryRun) => {
          await change("patch", PATH, { path: values, body, query: { dry_run: isDryRun } });
          return null;
        },
        done: `${hook.is_enabled ? "Disabled" : "Enabled"} ${hook.name}`,
      },
      hook.is_enabled
        ? `${hook.name} gets no notifications any more. Those that wait are kept for five days.`
        : `${hook.name} gets notifications again, also those that wait.`,
    ];
  },
  delete: (hook) => {
    const values = { name: hook.project, hook: hook.id };
    return [
      {
        title: "Delete hook",
        isDangerous: true,
        requests: [{ method: "delete", path: PATH, values }],
        commands: [commandText("regroup", "hooks", "remove", hook.project, hook.id)],
        run: async (isDryRun) => {
          await change("delete", PATH, { path: values, query: { dry_run: isDryRun } });
          return null;
        },
        done: `Deleted ${hook.name}`,
      },
      `${hook.name} and the log of its deliveries are deleted. Notifications that wait are not delivered.`,
    ];
  },
};
