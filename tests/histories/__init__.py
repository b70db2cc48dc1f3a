"""Recorded histories: jobs that began under an earlier release must replay under this one."""
