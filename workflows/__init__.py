"""Loom's workflows: deterministic, thin, and only `loom_dsl` and `temporalio` inside."""
