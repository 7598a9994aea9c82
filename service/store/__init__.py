"""The database: the only code with SQL. Tables, state transitions with their events, leases, migrations."""
