import { useJob } from "../job-context";

export default function StoryTab() {
  const { job } = useJob();
  return <h2>Story of {job.name}</h2>;
}
