"""What is missing or set up wrongly on this machine, and what to do about it. Looks only: nothing is changed."""

from loom_cli.doctor.check import Check, Status
from loom_cli.doctor.examine import PACKAGES, examine

__all__ = ["PACKAGES", "Check", "Status", "examine"]
