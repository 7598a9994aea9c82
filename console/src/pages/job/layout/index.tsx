/** Layout of a job: where its ranks are, what they send, why it is so, and the sizes that it can have. */

import { get } from "../../../api/client";
import { ResourceView } from "../../../components/resource-view";
import { useResource } from "../../../state/resource";
import { useJob } from "../job-context";
import { Alternatives } from "./alternatives";
import { Axes } from "./axes";
import "./layout.css";
import { Memory } from "./memory";
import { Mesh } from "./mesh-map";
import { Predictions } from "./predictions";
import { Sizes } from "./sizes";

export default function LayoutTab() {
  const { job } = useJob();
  const path = { job: job.id };
  const keys = [job.id, job.generation, job.state];
  const sizes = useResource((signal) => get("/v1/jobs/{job}/sizes", { path, signal }), [...keys, job.version]);
  const plan = useResource((signal) => get("/v1/jobs/{job}/plan", { path, signal }), keys);
  const why = useResource((signal) => get("/v1/jobs/{job}/why", { path, signal }), keys);
  const topology = useResource((signal) => get("/v1/topology", { signal }), [job.generation]);
  return (
    <div class="layout-tab">
      <Mesh job={job} topology={topology.data.value} />
      <ResourceView resource={sizes} label="Loading the sizes">
        {(found) => (
          <>
            <Sizes sizes={found} />
            <div class="grid">
              <Axes sizes={found} choice={why.data.value?.choice} />
              <Memory sizes={found} job={job} />
            </div>
          </>
        )}
      </ResourceView>
      <ResourceView resource={plan} label="Loading the plan">
        {(found) => (
          <>
            <Predictions plan={found} />
            <Alternatives plan={found} choice={why.data.value?.choice} />
          </>
        )}
      </ResourceView>
    </div>
  );
}
