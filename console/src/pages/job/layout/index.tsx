import { useJob } from "../job-context";

export default function LayoutTab() {
  const { job } = useJob();
  return <h2>Layout of {job.name}</h2>;
}
