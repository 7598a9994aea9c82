/** The server: its version, the readiness of what it needs, and its effective settings. */

import { get } from "../../api/client";
import { Problem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { Badge, type Tone } from "../../components/badge";
import { SelectField, TextField } from "../../components/field";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { Stat } from "../../components/stat";
import { EmptyState } from "../../components/states";
import { useResource } from "../../state/resource";
import { query, setQuery } from "../../state/router";
import { countText } from "../../text/numbers";

type Setting = Schema<"ServerSetting">;

const WHICH = [
  ["changed", "changed"],
  ["all", "all"],
] as const;
const TONES: Record<Setting["source"], Tone> = { default: "neutral", environment: "active", flag: "active" };
const UNAVAILABLE = 503;

export default function Server() {
  return (
    <>
      <Readiness />
      <Settings />
    </>
  );
}

function Readiness() {
  const state = useResource(async (signal) => {
    const [version, health, clusters] = await Promise.all([
      get("/version", { signal }),
      loadHealth(signal),
      get("/v1/clusters", { signal }),
    ]);
    return { version, health, clusters: clusters.clusters };
  }, []);
  return (
    <section class="card" aria-labelledby="readiness">
      <header class="admin-head">
        <h2 id="readiness">Server</h2>
        <button type="button" onClick={state.refresh}>
          Check again
        </button>
      </header>
      <ResourceView resource={state} label="Checking the server">
        {({ version, health, clusters }) => (
          <>
            <div class="stats">
              <Stat label="Version">{version.version}</Stat>
              <Stat label="API">{version.api}</Stat>
              <Stat label="Ready">
                {health.status === "ok" ? <Badge tone="good">ready</Badge> : <Badge tone="bad">not ready</Badge>}
              </Stat>
            </div>
            <ShortTable
              label="Checks of what the server needs"
              rows={Object.entries(health.checks)}
              rowKey={([name]) => name}
              columns={[
                { id: "name", label: "Dependency", cell: ([name]) => name },
                { id: "result", label: "Result", cell: ([, result]) => result },
              ]}
            />
            <ShortTable
              label="Clusters of the server"
              rows={clusters}
              rowKey={(cluster) => cluster.name}
              columns={[
                { id: "name", label: "Cluster", cell: (cluster) => cluster.name },
                {
                  id: "state",
                  label: "State",
                  cell: (cluster) =>
                    cluster.answers ? <Badge tone="good">answers</Badge> : <Badge tone="bad">does not answer</Badge>,
                },
                { id: "nodes", label: "Nodes", isNumber: true, cell: (cluster) => countText(cluster.nodes, "node") },
                { id: "problem", label: "Problem", cell: (cluster) => cluster.problem },
              ]}
            />
          </>
        )}
      </ResourceView>
    </section>
  );
}

/** Return the health. A server that is not ready answers 503, after the patience of the client. */
async function loadHealth(signal: AbortSignal): Promise<Schema<"Health">> {
  try {
    return await get("/readyz", { query: { verbose: true }, signal });
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== UNAVAILABLE) throw error;
    return { status: "unavailable", checks: { server: error.message } };
  }
}

function Settings() {
  const settings = useResource((signal) => get("/v1/settings", { signal }), []);
  const which = query.value.get("settings") === "all" ? "all" : "changed";
  const text = query.value.get("find") ?? "";
  const isShown = (each: Setting) =>
    (which === "all" || each.source !== "default") &&
    `${each.variable} ${each.description}`.toLowerCase().includes(text);
  return (
    <section class="card" aria-labelledby="settings">
      <header class="admin-head">
        <h2 id="settings">Effective settings</h2>
        <span class="filters">
          <TextField label="Find" value={text} isFilter onInput={(find) => setQuery({ find: find.toLowerCase() })} />
          <SelectField
            label="Settings"
            value={which}
            options={WHICH}
            onChange={(chosen) => setQuery({ settings: chosen === "all" ? "all" : undefined })}
          />
        </span>
      </header>
      <ResourceView resource={settings} label="Loading the settings">
        {(data) => {
          const rows = data.settings.filter(isShown);
          if (rows.length === 0) {
            return (
              <EmptyState title="No setting matches">
                <p>Show all settings, or remove the text.</p>
              </EmptyState>
            );
          }
          return (
            <ShortTable
              label="Settings with their sources"
              rows={rows}
              rowKey={(each) => each.name}
              columns={[
                { id: "variable", label: "Variable", cell: (each) => <code>{each.variable}</code> },
                { id: "value", label: "Value", cell: (each) => <code>{valueText(each)}</code> },
                {
                  id: "source",
                  label: "Source",
                  cell: (each) => <Badge tone={TONES[each.source]}>{each.source}</Badge>,
                },
                { id: "meaning", label: "Meaning", cell: (each) => each.description.replaceAll("`", "") },
              ]}
            />
          );
        }}
      </ResourceView>
    </section>
  );
}

function valueText(setting: Setting): string {
  const { value } = setting;
  if (setting.is_secret) return "(secret)";
  if (value === null || value === "") return "–";
  if (Array.isArray(value)) return value.join(", ") || "–";
  if (typeof value === "object")
    return (
      Object.entries(value)
        .map(([key, each]) => `${key}=${each}`)
        .join(", ") || "–"
    );
  return String(value);
}
