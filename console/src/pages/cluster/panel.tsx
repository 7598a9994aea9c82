/** The selected node or domain: its jobs, faults and measurements, and the actions on it. */

import type { ComponentChildren } from "preact";
import type { Schema } from "../../api/types";
import { Badge, type Tone } from "../../components/badge";
import { Icon } from "../../components/icon";
import { href, setQuery } from "../../state/router";
import { bytesText, compactText, countText, numberText } from "../../text/numbers";
import { agoText, timeText } from "../../text/time";
import { CordonPanel } from "./cordon";
import { DrainPanel } from "./drain";
import type { Marks } from "./map";
import { devicesOf, type Node, type Place, placeText, type Status, statusOf } from "./model";
import { UndrainPanel } from "./undrain";

const TONES: Record<Status, Tone> = {
  open: "good",
  draining: "active",
  cordoned: "waiting",
  quarantined: "warning",
  fenced: "warning",
  unreachable: "bad",
  lost: "bad",
};

export function PlacePanel(props: {
  place: Place;
  marks: Marks;
  probes: readonly Schema<"Probe">[];
  onChanged: () => void;
}) {
  const { place, onChanged } = props;
  const node = place.level === "node" ? place.nodes[0] : undefined;
  const present = place.nodes.filter((each) => each.node_id !== null);
  const draining = present.filter((each) => each.is_draining);
  const staying = present.filter((each) => !each.is_draining);
  return (
    <aside class="cluster-panel" aria-label={placeText(place)}>
      <header class="row">
        <h2>{placeText(place)}</h2>
        {node && <Badge tone={TONES[statusOf(node)]}>{statusOf(node)}</Badge>}
        <button
          type="button"
          class="plain"
          aria-label="Close the panel"
          onClick={() => setQuery({ select: undefined })}
        >
          <Icon name="close" />
        </button>
      </header>
      {node ? <NodeFacts node={node} probes={props.probes} /> : <DomainFacts nodes={place.nodes} />}
      <Jobs nodes={place.nodes} marks={props.marks} />
      {draining.length > 0 && <UndrainPanel key={`undrain ${place.key}`} nodes={draining} onDone={onChanged} />}
      {staying.length > 0 && <DrainPanel key={`drain ${place.key}`} place={place} nodes={staying} onDone={onChanged} />}
      {node && <CordonPanel key={`${place.key} ${statusOf(node)}`} node={node} onDone={onChanged} />}
      {node && <Faults node={node} />}
    </aside>
  );
}

function NodeFacts({ node, probes }: { node: Node; probes: readonly Schema<"Probe">[] }) {
  const { total, used, unit } = devicesOf(node);
  const probe = probes.find((each) => each.nodes.some((probed) => probed.name === node.name));
  const probed = probe?.nodes.find((each) => each.name === node.name);
  const anomalies = probe?.anomalies.filter((each) => each.nodes.includes(node.name)) ?? [];
  return (
    <>
      {node.health.why && <p class="notice warning">{node.health.why}</p>}
      <dl class="cluster-facts">
        <Fact name="In use">
          {numberText(used)} of {numberText(total)} {unit}
        </Fact>
        <Fact name="Memory">
          {bytesText(node.free_memory_bytes)} free of {bytesText(node.memory_bytes)}
        </Fact>
        <Fact name="Address">{node.address ?? "not in the cluster"}</Fact>
        {node.health.until_s !== null && <Fact name="Opens again">{timeText(node.health.until_s)}</Fact>}
        {node.health.cordoned_by !== null && (
          <Fact name="Cordoned">
            by {node.health.cordoned_by}, {agoText(node.health.cordoned_at_s)}
          </Fact>
        )}
        {node.spare_for && <Fact name="Spare for">{node.spare_for}</Fact>}
        {probe && probed && (
          <Fact name="Measured">
            {Object.entries(probed.flops)
              .map(([dtype, flops]) => `${compactText(flops)}FLOP/s ${dtype}`)
              .join(", ")}
            , memory {bytesText(probed.memory_bytes_s)}/s, {agoText(probe.time_s)}
          </Fact>
        )}
      </dl>
      {anomalies.map((each) => (
        <p key={each.message} class="notice warning">
          {each.message}
        </p>
      ))}
    </>
  );
}

function DomainFacts({ nodes }: { nodes: readonly Node[] }) {
  const used = nodes.reduce((sum, node) => sum + devicesOf(node).used, 0);
  const total = nodes.reduce((sum, node) => sum + devicesOf(node).total, 0);
  const closed = nodes.filter((node) => statusOf(node) !== "open");
  return (
    <dl class="cluster-facts">
      <Fact name="Nodes">
        {countText(nodes.length, "node")}, {closed.length === 0 ? "all open" : `${closed.length} not open`}
      </Fact>
      <Fact name="In use">
        {numberText(used)} of {numberText(total)} devices
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Jobs({ nodes, marks }: { nodes: readonly Node[]; marks: Marks }) {
  const ranks = new Map<string, { name: string; ranks: number }>();
  for (const job of nodes.flatMap((node) => node.jobs)) {
    ranks.set(job.id, { name: job.name, ranks: (ranks.get(job.id)?.ranks ?? 0) + job.ranks });
  }
  return (
    <section aria-label="Jobs here">
      <h3>Jobs here</h3>
      {ranks.size === 0 && <p class="quiet">No job that you see uses it.</p>}
      <ul class="cluster-list">
        {[...ranks].map(([id, job]) => (
          <li key={id}>
            <i class={`cluster-mark fill-${marks.get(id)?.series ?? 8}`}>{marks.get(id)?.letter}</i>
            <a href={href(`jobs/${id}`)}>{job.name}</a> <span class="quiet">{countText(job.ranks, "rank")}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Faults({ node }: { node: Node }) {
  const faults = [...node.health.faults].reverse();
  return (
    <section aria-label="Faults">
      <h3>Faults</h3>
      {faults.length === 0 && <p class="quiet">No fault is recorded.</p>}
      <ul class="cluster-list">
        {faults.map((fault) => (
          <li key={`${fault.time_s} ${fault.kind}`}>
            <b>{fault.kind.replaceAll("_", " ")}</b> {fault.message}{" "}
            <span class="quiet">
              {agoText(fault.time_s)}
              {fault.job_id && (
                <>
                  , <a href={href(`jobs/${fault.job_id}`)}>job</a>
                </>
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
