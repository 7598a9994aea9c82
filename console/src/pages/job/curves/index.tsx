import { useJob } from "../job-context";

export default function CurvesTab() {
  const { job } = useJob();
  return <h2>Curves of {job.name}</h2>;
}
