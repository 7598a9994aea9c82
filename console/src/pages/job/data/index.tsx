/** Samples and checkpoints of a job: what was used, and from what the job can continue. */

import { get } from "../../../api/client";
import { ResourceView } from "../../../components/resource-view";
import { useChanges } from "../../../state/changes";
import { useResource } from "../../../state/resource";
import { query } from "../../../state/router";
import { useJob } from "../job-context";
import { Checkpoints } from "./checkpoints";
import "./data.css";
import { Samples } from "./samples";

export default function DataTab() {
  const { job } = useJob();
  const path = { job: job.id };
  const isAll = query.value.get("removed") === "true";
  const ledger = useResource((signal) => get("/v1/jobs/{job}/ledger", { path, signal }), [job.id]);
  const generations = useResource((signal) => get("/v1/jobs/{job}/generations", { path, signal }), [job.id]);
  const checkpoints = useResource(
    (signal) => get("/v1/jobs/{job}/checkpoints", { path, query: { removed: isAll }, signal }),
    [job.id, isAll],
  );
  useChanges(
    (change) => change.job === job.id,
    () => {
      ledger.refresh();
      generations.refresh();
      checkpoints.refresh();
    },
  );
  return (
    <div class="data-tab">
      <ResourceView resource={ledger} label="Loading the ledger">
        {(found) => <Samples ledger={found} generations={generations.data.value?.generations ?? []} job={job} />}
      </ResourceView>
      <ResourceView resource={checkpoints} label="Loading the checkpoints">
        {(found) => (
          <Checkpoints
            list={found.checkpoints}
            generations={generations.data.value?.generations ?? []}
            isAll={isAll}
            refresh={checkpoints.refresh}
          />
        )}
      </ResourceView>
    </div>
  );
}
