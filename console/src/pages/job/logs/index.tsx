import { useJob } from "../job-context";

export default function LogsTab() {
  const { job } = useJob();
  return <h2>Logs of {job.name}</h2>;
}
