import { useJob } from "../job-context";

export default function DataTab() {
  const { job } = useJob();
  return <h2>Data of {job.name}</h2>;
}
