"""Memory of snapshots: mapped once, present before it is needed, copied in blocks by several threads."""
