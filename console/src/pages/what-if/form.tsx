/** The changes of a scenario. Each field is a part of the address. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { useResource } from "../../state/resource";
import { setQuery } from "../../state/router";
import { FIELDS, type Scenario } from "./scenario";

interface Names {
  nodes: Schema<"Node">[];
  domains: string[];
}

export function ScenarioForm({ scenario }: { scenario: Scenario }) {
  const names = useResource(loadNames, []);
  const nodes = names.data.value?.nodes ?? [];
  const isEmpty = FIELDS.every((name) => scenario[name] === "");
  return (
    <form class="card what-if-form" aria-label="Scenario" onSubmit={(event) => event.preventDefault()}>
      <label>
        Add nodes
        <input type="number" min="0" max="4096" placeholder="0" {...bound("add", scenario)} />
      </label>
      <label>
        Type of the added nodes
        <select {...bound("like", scenario)}>
          <option value="">the most common</option>
          {typesOf(nodes).map(([text, name]) => (
            <option key={name} value={name}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <label>
        Drain nodes or racks
        <input list="what-if-places" placeholder="rack:r1" {...bound("drain", scenario)} />
      </label>
      <datalist id="what-if-places">
        {[...(names.data.value?.domains ?? []), ...nodes.map((node) => node.name)].slice(0, 500).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <label>
        Change quotas
        <input placeholder="vision.limit=64" {...bound("quota", scenario)} />
      </label>
      <label>
        Add jobs
        <input placeholder="name=big,ranks=64,duration_s=7200" {...bound("job", scenario)} />
      </label>
      <label>
        Cancel jobs
        <input placeholder="ids of jobs" {...bound("cancel", scenario)} />
      </label>
      <label>
        Unknown remaining time
        <input placeholder="1h" {...bound("assumed", scenario)} />
      </label>
      <label>
        Simulated time
        <input placeholder="7d" {...bound("horizon", scenario)} />
      </label>
      {!isEmpty && (
        <button type="button" onClick={() => setQuery(Object.fromEntries(FIELDS.map((name) => [name, undefined])))}>
          Clear
        </button>
      )}
    </form>
  );
}

function bound(name: keyof Scenario, scenario: Scenario) {
  return {
    value: scenario[name],
    onInput: (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
      setQuery({ [name]: event.currentTarget.value }),
  };
}

async function loadNames(signal: AbortSignal): Promise<Names> {
  const [{ nodes }, topology] = await Promise.all([get("/v1/nodes", { signal }), get("/v1/topology", { signal })]);
  return { nodes: nodes.filter((node) => node.node_id !== null), domains: topology.domains.flatMap(domainsOf) };
}

function domainsOf(domain: Schema<"Domain">): string[] {
  if (domain.level === "node" || domain.level === "device") return [];
  const own = domain.name === "" ? [] : [`${domain.level}:${domain.name}`];
  return [...own, ...domain.children.flatMap(domainsOf)];
}

/** Return the types of nodes as text, each with the name of one of its nodes. */
function typesOf(nodes: readonly Schema<"Node">[]): [string, string][] {
  const found = new Map<string, string>();
  for (const node of nodes) {
    const text = node.gpus > 0 ? `${node.gpus} GPUs, ${node.cpus} cores` : `${node.cpus} cores`;
    if (!found.has(text)) found.set(text, node.name);
  }
  return [...found];
}
