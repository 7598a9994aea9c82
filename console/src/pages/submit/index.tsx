import { PageHeader } from "../../components/page-header";

export default function SubmitPage() {
  return <PageHeader title="Submit" />;
}
