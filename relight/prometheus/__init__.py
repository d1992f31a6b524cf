"""Prometheus as a witness: what GPUs and nodes did, many nodes by one query. Down or stale, it is silent."""
