"""One transaction on the store, as read and write functions see it."""

from loom_store.approvals import Approvals
from loom_store.deliveries import Deliveries
from loom_store.effects import Effects
from loom_store.entries import Entries
from loom_store.epochs import Epochs
from loom_store.events import Events
from loom_store.integrity import Integrity
from loom_store.jobs import Jobs
from loom_store.kept_rules import KeptRules
from loom_store.marks import Marks
from loom_store.retention import Retention


class Transaction(
    Entries, Events, Effects, Approvals, KeptRules, Deliveries, Jobs, Marks, Retention, Integrity, Epochs
):
    """All that a function given to `Store.write` or `Store.read` can do.

    Its methods are plain calls: the function runs on one of the store's threads. It belongs to that call only.
    """
