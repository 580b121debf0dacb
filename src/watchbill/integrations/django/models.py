"""No models: the tables are Watchbill's own. Django sends post_migrate only to apps that have this module."""
