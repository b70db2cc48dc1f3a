"""Loom's durable side store: sessions, contents, events, effects, approvals and jobs in one SQLite file."""

from loom_store.location import default_store_path
from loom_store.retention import Pruned
from loom_store.rows import ApprovalRow, Effect, EffectStatus, Entry, EntryKind, EntryRange, Moment, NewEntry
from loom_store.sizes import SizeReport
from loom_store.store import Store
from loom_store.transaction import Transaction

__all__ = [
    "ApprovalRow",
    "Effect",
    "EffectStatus",
    "Entry",
    "EntryKind",
    "EntryRange",
    "Moment",
    "NewEntry",
    "Pruned",
    "SizeReport",
    "Store",
    "Transaction",
    "default_store_path",
]
