"""Transactions of the database: connections, leases, conditions of a request, and the notification of a change."""
