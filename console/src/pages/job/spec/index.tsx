import { useJob } from "../job-context";

export default function SpecTab() {
  const { job } = useJob();
  return <h2>Spec of {job.name}</h2>;
}
