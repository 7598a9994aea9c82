/** The state of the server: what needs a person comes first. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { PageHeader } from "../../components/page-header";
import { ResourceView } from "../../components/resource-view";
import { concernsQueue, useChanges } from "../../state/changes";
import { useInterval } from "../../state/interval";
import { useResource } from "../../state/resource";
import { href } from "../../state/router";
import { AttentionList } from "./attention";
import { DeviceCard } from "./devices";
import { GoodputCard } from "./goodput";
import { IncidentTable } from "./incidents";
import "./overview.css";
import { QueueCard } from "./queue";

/** Devices of other clusters change without a notice. */
const REFRESH_MS = 30_000;

export default function OverviewPage() {
  const overview = useResource((signal) => get("/v1/overview", { signal }), []);
  useChanges(concernsQueue, overview.refresh);
  useInterval(overview.refresh, REFRESH_MS);
  return (
    <>
      <PageHeader title="Overview">
        <ServerLinks overview={overview.data.value} />
        <a class="button" href={href("submit")}>
          Submit a job
        </a>
      </PageHeader>
      <ResourceView resource={overview} label="Loading the overview">
        {(data) => (
          <>
            <p class="overview-summary">{data.summary}</p>
            <AttentionList items={data.attention} total={data.attention_total} />
            <div class="grid">
              {data.devices && <DeviceCard devices={data.devices} />}
              <QueueCard overview={data} />
              <GoodputCard days={data.goodput} />
            </div>
            <IncidentTable incidents={data.incidents} total={data.incidents_total} />
          </>
        )}
      </ResourceView>
    </>
  );
}

function ServerLinks({ overview }: { overview: Schema<"Overview"> | undefined }) {
  const links = overview?.links;
  return (
    <>
      {links?.grafana && (
        <a href={links.grafana} target="_blank" rel="noreferrer">
          Grafana
        </a>
      )}
      {links?.ray_dashboard && (
        <a href={links.ray_dashboard} target="_blank" rel="noreferrer">
          Ray dashboard
        </a>
      )}
    </>
  );
}
