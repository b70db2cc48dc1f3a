"""One transaction on the store, as read and write functions see it."""

from loom_store.queries.approvals import Approvals, KeptRules
from loom_store.queries.conversations import Entries
from loom_store.queries.deliveries import Deliveries
from loom_store.queries.effects import Effects
from loom_store.queries.events import Events
from loom_store.queries.identity import Identity
from loom_store.queries.jobs import Jobs, Marks
from loom_store.queries.retention import Retention
from loom_store.queries.steps import Steps
from loom_store.queries.workers import Workers


class Transaction(
    Entries,
    Events,
    Effects,
    Approvals,
    KeptRules,
    Deliveries,
    Jobs,
    Marks,
    Steps,
    Retention,
    Identity,
    Workers,
):
    """All that a function given to `Store.write` or `Store.read` can do.

    Its methods are plain calls: the function runs on one of the store's threads. It belongs to that call only.
    """
