/** The tabs of the page. Each is loaded when it is first shown. */

import type { View } from "../../components/lazy-view";
import type { Tab } from "../../components/tabs";

interface AdminTab extends Tab {
  load: () => Promise<{ default: View }>;
}

export const TABS: readonly [AdminTab, ...AdminTab[]] = [
  { id: "you", label: "You", load: () => import("./you") },
  { id: "tokens", label: "Tokens", load: () => import("./tokens") },
  { id: "sessions", label: "Sessions", load: () => import("./sessions") },
  { id: "members", label: "Members", load: () => import("./members") },
  { id: "hooks", label: "Hooks", load: () => import("./hooks") },
  { id: "secrets", label: "Secrets", load: () => import("./secrets") },
  { id: "audit", label: "Audit", load: () => import("./audit") },
  { id: "server", label: "Server", load: () => import("./server") },
];
