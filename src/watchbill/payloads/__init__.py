"""Where payloads live that are too large for the database: a directory, an object store, or what a user brings."""

from watchbill.payloads.store import NoPayloadStore, PayloadGone, PayloadStore, StoreFailed, new_key, open_store

__all__ = ["NoPayloadStore", "PayloadGone", "PayloadStore", "StoreFailed", "new_key", "open_store"]
