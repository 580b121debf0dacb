"""An app with tasks for another queue."""
