"""The audit trail: who decided what, on which evidence, what was done, and what came back."""
