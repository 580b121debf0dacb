"""Ours and the peers', side by side on one server: `make bench`. README.md says what is measured and how."""
