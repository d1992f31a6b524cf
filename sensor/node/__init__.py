"""The node sensor: what the kernel log and the GPUs of one compute node say. It changes nothing.

Two processes. `sensor.node.watch` is always there and light: it reads, judges, and writes what is worth
telling into a spool. `sensor.node.tell` is started when the spool has something, asks the scheduler for the
jobs on this node, signals their monitors, and ends again. Nothing that the first one imports may import
Temporal's client: it would add half to the memory that every compute node pays for.
"""
