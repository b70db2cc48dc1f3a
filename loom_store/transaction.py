"""One transaction on the store, as read and write functions see it."""

from loom_store.queries.approvals import ApprovalQueries, RuleQueries
from loom_store.queries.conversations import EntryQueries
from loom_store.queries.deliveries import DeliveryQueries
from loom_store.queries.effects import EffectQueries
from loom_store.queries.events import EventQueries
from loom_store.queries.identity import IdentityQueries
from loom_store.queries.jobs import JobQueries, MarkQueries
from loom_store.queries.retention import RetentionQueries
from loom_store.queries.steps import StepQueries
from loom_store.queries.workers import WorkerQueries


class Transaction(
    EntryQueries,
    EventQueries,
    EffectQueries,
    ApprovalQueries,
    RuleQueries,
    DeliveryQueries,
    JobQueries,
    MarkQueries,
    StepQueries,
    RetentionQueries,
    IdentityQueries,
    WorkerQueries,
):
    """All that a function given to `Store.write` or `Store.read` can do.

    Its methods are plain calls: the function runs on one of the store's threads. It belongs to that call only.
    """
