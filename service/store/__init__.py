"""The only SQL: tables, transitions with their events, leases, migrations."""
