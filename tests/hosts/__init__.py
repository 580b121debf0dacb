"""Failover on several hosts: real Patroni, etcd, HAProxy and PgBouncer; each host is a network namespace."""
