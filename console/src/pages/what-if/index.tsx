import { PageHeader } from "../../components/page-header";

export default function WhatifPage() {
  return <PageHeader title="What if" />;
}
