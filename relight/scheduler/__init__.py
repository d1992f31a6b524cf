"""The scheduler port and its adapters."""
