"""Decisions about the use of devices: device-hours, money and budgets."""
