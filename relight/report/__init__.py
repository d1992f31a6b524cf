"""The report: what faults cost, where the time went, and what would help. Pure, except for the plots."""
