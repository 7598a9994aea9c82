import { useJob } from "../job-context";

export default function RanksTab() {
  const { job } = useJob();
  return <h2>Ranks of {job.name}</h2>;
}
