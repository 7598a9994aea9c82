import { useJob } from "../job-context";

export default function WhyTab() {
  const { job } = useJob();
  return <h2>Why of {job.name}</h2>;
}
