#!/usr/bin/env bash
# The handler of a worker in another language: writes down its start and its end, as application.py does.
read -r payload
id=$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' <<< "$payload")
note() { printf '{"what": "%s", "at": %s, "id": "%s"%s}\n' "$1" "$(date +%s.%N)" "$id" "${2:-}" >> "$CHAOS_JOURNAL/shell-$$.jsonl"; }
note start
note end ', "how": "returned"'
