import { PageHeader } from "../../components/page-header";

export default function QueueandprojectsPage() {
  return <PageHeader title="Queue and projects" />;
}
