"""The steps of the runbook, one module each: each does one thing and can be run twice without harm."""
