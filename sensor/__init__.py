"""The sensor: reads logs and the scheduler, and reports; it decides and changes nothing."""
