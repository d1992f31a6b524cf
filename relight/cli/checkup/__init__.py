"""The stages that `relight doctor` goes through, from the settings to a job's log."""
