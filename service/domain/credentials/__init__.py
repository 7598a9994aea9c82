"""Credentials of people and programs: tokens of the API, cookies of sessions, and the random secrets in them."""
