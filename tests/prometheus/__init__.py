"""A real Prometheus, and exporters that say what a test tells them to."""
