/** One job: its header, and the tab of the address. */

import { get } from "../../api/client";
import { LazyView } from "../../components/lazy-view";
import { ResourceView } from "../../components/resource-view";
import { Tabs } from "../../components/tabs";
import { useChanges } from "../../state/changes";
import { useResource } from "../../state/resource";
import { JobHeader } from "./header";
import { JobContext } from "./job-context";
import { TABS } from "./tabs";

export default function JobPage({ values }: { values: Record<string, string> }) {
  const id = values.job ?? "";
  const job = useResource((signal) => get("/v1/jobs/{job}", { path: { job: id }, signal }), [id]);
  useChanges((change) => change.job === id, job.refresh);
  const tab = TABS.find((each) => each.id === values.tab) ?? TABS[0];
  return (
    <ResourceView resource={job} label="Loading the job">
      {(data) => (
        <JobContext.Provider value={{ job: data, refresh: job.refresh }}>
          <JobHeader job={data} refresh={job.refresh} />
          <Tabs base={`jobs/${id}`} tabs={TABS} current={tab.id} />
          <LazyView key={tab.id} load={tab.load} values={values} />
        </JobContext.Provider>
      )}
    </ResourceView>
  );
}
