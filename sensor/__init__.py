"""The cluster sensor: follows logs and the scheduler, and reports what it sees. It changes nothing."""
