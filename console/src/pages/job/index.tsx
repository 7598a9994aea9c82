/** One job: its header, and the tab of the address. */

import { get } from "../../api/client";
import { LazyView } from "../../components/lazy-view";
import { ResourceView } from "../../components/resource-view";
import { Tabs } from "../../components/tabs";
import { useChanges } from "../../state/changes";
import { useInterval } from "../../state/interval";
import { useResource } from "../../state/resource";
import { JobHeader } from "./header";
import { JobContext } from "./job-context";
import { TABS } from "./tabs";
import { TransferBar } from "./transfer-bar";
import { transfersOf } from "./transfers";

/** Progress of a transfer is no change that the server announces: only its begin is one. */
const REFRESH_MS = 1000;

export default function JobPage({ values }: { values: Record<string, string> }) {
  const id = values.job ?? "";
  const job = useResource((signal) => get("/v1/jobs/{job}", { path: { job: id }, signal }), [id]);
  useChanges((change) => change.job === id, job.refresh);
  const transfers = job.data.value ? transfersOf(job.data.value) : [];
  useInterval(job.refresh, transfers.length > 0 ? REFRESH_MS : undefined);
  const tab = TABS.find((each) => each.id === values.tab) ?? TABS[0];
  return (
    <ResourceView resource={job} label="Loading the job">
      {(data) => (
        <JobContext.Provider value={{ job: data, refresh: job.refresh }}>
          <JobHeader job={data} refresh={job.refresh} />
          {transfers.map((each) => (
            <TransferBar key={each.label} {...each} />
          ))}
          <Tabs base={`jobs/${id}`} tabs={TABS} current={tab.id} />
          <LazyView key={tab.id} load={tab.load} values={values} />
        </JobContext.Provider>
      )}
    </ResourceView>
  );
}
