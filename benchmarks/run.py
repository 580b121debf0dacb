#!/usr/bin/env python3
"""Measures job queues side by side: run.py [--peers a,b] [--measures m1,m2,m3,m4clean,m4held] [--repeat 3] [--json FILE]

Environment: BENCH_ENV (see setup.sh), BENCH_PG_PORT, BENCH_REDIS_PORT. README.md says what each measure is.
"""
import argparse, json, os, shutil, signal, statistics, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ENV = os.path.abspath(os.environ.get("BENCH_ENV", os.path.join(HERE, "..", ".bench-env")))
PORT = os.environ.get("BENCH_PG_PORT", "54329")
RPORT = os.environ.get("BENCH_REDIS_PORT", "63799")
ADMIN = f"postgresql://postgres@127.0.0.1:{PORT}/postgres"
DSN = f"postgresql://postgres@127.0.0.1:{PORT}/bench"
PY = os.path.join(ENV, "venv", "bin", "python")

if os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ENV, "venv")) and os.path.exists(PY):
    os.execv(PY, [PY, os.path.abspath(sys.argv[0]), *sys.argv[1:]])
import psycopg


def py(name, venv="venv"):
    return [os.path.join(ENV, venv, "bin", "python"), os.path.join(HERE, "peers", name + ".py")]


def node(name):
    return ["node", os.path.join(HERE, "node", name + ".mjs")]


FOLIOT = [os.path.join(HERE, "..", ".venv", "bin", "python"), os.path.join(HERE, "peers", "foliot_peer.py")]
FOLIOT_LEFT = "SELECT count(*) FROM foliot.jobs"
PROC_LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo','doing')"
GW_LEFT = "SELECT count(*) FROM graphile_worker._private_jobs"
BOSS_LEFT = "SELECT count(*) FROM pgboss.job WHERE name='noop' AND state<'completed'"
GWLQ = {"concurrency": 24, "worker": {"maxPoolSize": 25, "localQueue": {"size": 500, "refetchDelay": {"durationMs": 10}},
                                      "completeJobBatchDelay": 0, "failJobBatchDelay": 0}}
# name: (command, options, SQL for "jobs left" or None (count handlers only), jobs for M1)
PEERS = {
    "foliot": (FOLIOT, {}, FOLIOT_LEFT, 100000),
    "foliot-def": (FOLIOT, {"def": True}, FOLIOT_LEFT, 100000),
    "foliot-1kB": (FOLIOT, {"padding": 1000}, FOLIOT_LEFT, 50000),
    "foliot-10kB": (FOLIOT, {"padding": 10000}, FOLIOT_LEFT, 20000),
    "graphile-batched": (node("graphile_worker"), GWLQ, GW_LEFT, 100000),
    "pgqueuer": (py("pgqueuer_peer"), {"batch": 1000, "uvloop": True, "pool": 5}, "SELECT count(*) FROM pgqueuer", 30000),
    "pg-boss": (node("pg_boss"), {"batch": 2000, "concurrency": 2, "poll": 0.5, "notify": True}, BOSS_LEFT, 50000),
    "procrastinate": (py("procrastinate_peer"), {"concurrency": 20}, PROC_LEFT, 5000),
    "celery-redis": (py("celery_peer"), {"pool": "solo"}, None, 8000),
    "taskiq-redis": (py("taskiq_peer"), {}, None, 15000),
}


def load_extra():
    """More peers (yours, for instance) from JSON files named in BENCH_EXTRA: {"name": [["cmd","arg"], {opts}, "left sql", n]}"""
    for f in filter(None, os.environ.get("BENCH_EXTRA", "").split(os.pathsep)):
        for k, v in json.load(open(f)).items():
            PEERS[k] = tuple(v)


class Bench:
    def __init__(self, name, opts=None):
        self.name = name
        self.cmd, self.opts, self.left_sql, self.n = PEERS[name]
        if opts:
            self.opts = {**self.opts, **opts}
        self.tmp = tempfile.mkdtemp(prefix="bench-")
        self.workers = []
        pidfile = os.path.join(ENV, "pg", "postmaster.pid")
        self.postmaster = open(pidfile).readline().strip() if os.path.exists(pidfile) else ""

    def env(self, **kw):
        e = dict(os.environ, BENCH_DSN=DSN, BENCH_ENV=ENV, BENCH_REDIS_URL=f"redis://127.0.0.1:{RPORT}/0",
                 BENCH_OPTS=json.dumps(self.opts), BENCH_SQLITE=os.path.join(ENV, "huey.db"))
        e.update(kw)
        return e

    def call(self, *args):
        r = subprocess.run(self.cmd + [str(a) for a in args], env=self.env(), stdout=subprocess.PIPE, text=True, check=True)
        line = [x for x in r.stdout.splitlines() if x.startswith("{")]
        return json.loads(line[-1]) if line else None

    def fresh(self):
        with psycopg.connect(ADMIN, autocommit=True) as c:
            c.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
            c.execute("CREATE DATABASE bench")
        self.call("setup")

    def sql(self, *stmts):
        with psycopg.connect(DSN, autocommit=True) as c:
            for s in stmts:
                r = c.execute(s)
        return r

    def settle(self, vacuum=True):
        if self.left_sql:
            self.sql("VACUUM ANALYZE" if vacuum else "ANALYZE", "CHECKPOINT")
        time.sleep(0.3)

    def start(self, count=1, **kw):
        self.counters = tempfile.mkdtemp(dir=self.tmp)
        for _ in range(count):
            self.workers.append(subprocess.Popen(self.cmd + ["worker"], env=self.env(BENCH_COUNTERS=self.counters, **kw),
                                                 stdout=subprocess.DEVNULL, stderr=open(os.path.join(self.tmp, "err"), "ab"),
                                                 start_new_session=True))

    def stop(self):
        for w in self.workers:
            if w.poll() is None:
                w.send_signal(signal.SIGTERM)
        for w in self.workers:
            try:
                w.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(w.pid, signal.SIGKILL)  # its own session: only what this run started
                w.wait()
        self.workers = []

    def counts(self):
        total, live = 0, 0
        for f in os.listdir(self.counters):
            with open(os.path.join(self.counters, f), "rb") as fh:
                b = fh.read(16)
            if len(b) == 16:
                c, = struct.unpack_from("<Q", b)
                total += c
                live += c > 0
        return total, live

    def cpu(self):
        """CPU seconds so far: this run's workers, postgres and redis, the whole machine, stolen by the hypervisor."""
        tick = os.sysconf("SC_CLK_TCK")
        mine = {w.pid for w in self.workers}
        wsum = psum = 0
        for p in os.listdir("/proc"):
            if not p.isdigit():
                continue
            try:
                s = open(f"/proc/{p}/stat").read()
            except OSError:
                continue
            comm, rest = s[s.index("(") + 1:s.rindex(")")], s[s.rindex(")") + 2:].split()
            t = (int(rest[11]) + int(rest[12])) / tick
            if p == self.postmaster or rest[1] == self.postmaster or comm == "redis-server":  # not some other cluster
                psum += t + ((int(rest[13]) + int(rest[14])) / tick if p == self.postmaster else 0)
            elif int(p) in mine or int(rest[3]) in mine:  # session id
                wsum += t
        stat = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return wsum, psum, (sum(stat) - stat[3] - stat[4]) / tick, stat[7] / tick

    def writes(self):
        """What the server has written so far: bytes of WAL, commits, row updates and how many of them were HOT."""
        if not self.left_sql:
            return None
        return self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), "
                        "(SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables), (SELECT coalesce(sum(n_tup_hot_upd), 0) FROM pg_stat_user_tables)").fetchone()

    def per_job(self, before, jobs):
        if before is None or not jobs:
            return {}
        time.sleep(0.6)  # the statistics of a backend arrive a little later
        wal, commits, updates, hot = (float(b) - float(a) for a, b in zip(before, self.writes()))
        return {"wal_per_job": wal / jobs, "commits_per_job": commits / jobs, "hot_share": hot / updates if updates else None}

    def drain(self, n, workers=1, window=None):
        """Time from 'every worker has started a job' until all are done in the database; or rate over a fixed window."""
        self.start(workers)
        t_start = time.time()
        deadline = t_start + 240
        need = workers * self.opts.get("_procs", 1)
        while True:
            total, live = self.counts()
            if live >= need or total >= n or (live and time.time() - t_start > 8):
                break
            if time.time() > t_start + 40 or any(w.poll() is not None for w in self.workers):
                self.stop()
                sys.stderr.write(open(os.path.join(self.tmp, "err")).read()[-2000:])
                return None
            time.sleep(0.002)
        t0, c0, cpu0 = time.time(), total, self.cpu()
        end = t0 + window if window else deadline
        while total < n and time.time() < end:
            time.sleep(0.005)
            total, _ = self.counts()
        if self.left_sql and total >= n:
            with psycopg.connect(DSN, autocommit=True) as c:
                while c.execute(self.left_sql).fetchone()[0] and time.time() < end:
                    time.sleep(0.005)
        dt, cpu1 = time.time() - t0, self.cpu()
        self.stop()
        return {"rate": (total - c0) / dt, "seconds": dt, "done": total, "worker_cpu": (cpu1[0] - cpu0[0]) / dt, "server_cpu": (cpu1[1] - cpu0[1]) / dt,
                "other_cpu": (cpu1[2] - cpu0[2] - cpu1[0] + cpu0[0] - cpu1[1] + cpu0[1]) / dt, "steal": (cpu1[3] - cpu0[3]) / dt}

    def m1(self, workers=1, n=None):
        n = n or self.n
        self.fresh()
        before = self.writes()
        b = self.call("bulk", n)
        enqueued = self.per_job(before, n)
        self.settle()
        before = self.writes()
        r = self.drain(n, workers)
        if r:
            r["bulk_rate"] = b["n"] / b["seconds"]
            r.update(self.per_job(before, n))
            r["wal_per_job"] = r.get("wal_per_job", 0) + enqueued.get("wal_per_job", 0)
        return r

    def m2(self, n=None):
        self.fresh()
        n = n or min(self.n, 3000)
        s = self.call("single", n)
        return {"rate": s["n"] / s["seconds"]}

    def m3(self, n=200, gap=50):
        self.fresh()
        f, g = os.path.join(self.tmp, "starts"), os.path.join(self.tmp, "sent")
        for x in (f, g):
            if os.path.exists(x):
                os.unlink(x)
        self.start(1, BENCH_LAT_FILE=f)
        time.sleep(5 if "dbos" in self.name else 3)
        self.call("latency", n, gap, g)
        time.sleep(2.5)
        self.stop()
        sent = {int(a): (int(b), int(c)) for a, b, c in (x.split() for x in open(g))}
        got = {}
        for x in open(f):
            a, b = x.split()
            got.setdefault(int(a), int(b))
        commit = sorted((got[i] - sent[i][1]) / 1e6 for i in sent if i in got)[:]
        call = sorted((got[i] - sent[i][0]) / 1e6 for i in sent if i in got)
        q = lambda v, p: v[min(len(v) - 1, int(len(v) * p))]
        return {"n": len(commit), "p50": q(commit, .5), "p95": q(commit, .95), "p99": q(commit, .99),
                "call_p50": q(call, .5), "call_p95": q(call, .95), "call_p99": q(call, .99)}

    def m4(self, hold, churn=200000, n=None, window=15):
        """Throughput after `churn` jobs of dead tuples; hold=True keeps an old snapshot open throughout."""
        n = n or self.n
        self.fresh()
        holder = psycopg.connect(DSN)
        try:
            if hold:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT 1")
            self.call("bulk", churn)
            self.sql("ANALYZE")
            self.call("churn", churn)
            self.call("bulk", n)
            self.settle(vacuum=not hold)
            return self.drain(n, 1, window)
        finally:
            self.stop()
            holder.close()

    def close(self):
        self.stop()
        shutil.rmtree(self.tmp, ignore_errors=True)


def quiet(limit=60):
    """Wait until the rest of the machine is (nearly) idle."""
    end = time.time() + limit
    while time.time() < end:
        a = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        time.sleep(0.4)
        b = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        d = [y - x for x, y in zip(a, b)]
        if d[3] + d[4] > 0.88 * sum(d):
            return


def med(rows, key):
    v = [r[key] for r in rows if r]
    return (statistics.median(v), min(v), max(v)) if v else (None, None, None)


def main():
    load_extra()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that "finally" stops the workers
    ap = argparse.ArgumentParser()
    ap.add_argument("--peers", default=",".join(PEERS))
    ap.add_argument("--measures", default="m1,m1x2,m2,m3")
    ap.add_argument("--repeat", type=int, default=3)
    ap.add_argument("--n", type=int)
    ap.add_argument("--churn", type=int, default=200000)
    ap.add_argument("--opts", help="JSON merged over the peers' options")
    ap.add_argument("--quiet", type=float, default=0.3, help="foreign CPU (cores) above which a run counts as disturbed")
    ap.add_argument("--json")
    a = ap.parse_args()
    results = {}
    if a.json and os.path.exists(a.json):
        results = json.load(open(a.json))
    f = lambda x: "-" if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.2f}"
    for name in a.peers.split(","):
        res = results.setdefault(name, {})
        for m in a.measures.split(","):
            rows = []
            for attempt in range(a.repeat + 3):  # a run disturbed by other load on the machine is repeated, at most 3 times
                rows.sort(key=lambda r: r.get("other_cpu", 0) > a.quiet)
                if len([r for r in rows if r.get("other_cpu", 0) <= a.quiet]) >= a.repeat or attempt >= a.repeat + 3:
                    break
                if attempt >= a.repeat and not rows:
                    break
                quiet()
                b = Bench(name, json.loads(a.opts) if a.opts else None)
                try:
                    r = ({"m1": lambda: b.m1(1, a.n), "m1x2": lambda: b.m1(2, a.n), "m2": b.m2, "m3": b.m3,
                                 "m4clean": lambda: b.m4(False, a.churn, a.n), "m4held": lambda: b.m4(True, a.churn, a.n)}[m]())
                    if r:
                        rows.append(r)
                except (subprocess.CalledProcessError, psycopg.Error, OSError) as e:
                    sys.stderr.write(f"{name} {m}: {e}\n")
                finally:
                    b.close()
            rows = sorted(rows, key=lambda r: r.get("other_cpu", 0) > a.quiet)[:a.repeat]
            if not rows:
                print(f"{name:22} {m:8} failed", flush=True)
                continue
            res[m] = rows
            if m == "m3":
                print(f"{name:22} {m:8} " + "  ".join(f"{k}={med(rows, k)[0]:.2f}" for k in ("p50", "p95", "p99", "call_p50", "call_p99")), flush=True)
            else:
                v = med(rows, "rate")
                x = f" bulk={f(med(rows, 'bulk_rate')[0])}/s" if "bulk_rate" in rows[0] else ""
                c = f" cpu worker={med(rows, 'worker_cpu')[0]:.2f} server={med(rows, 'server_cpu')[0]:.2f} other={med(rows, 'other_cpu')[0]:.2f}" if "worker_cpu" in rows[0] else ""
                if rows[0].get("wal_per_job"):
                    hot = med(rows, "hot_share")[0] if rows[0].get("hot_share") is not None else None
                    c += f" wal={med(rows, 'wal_per_job')[0]:.0f} B/job commits={med(rows, 'commits_per_job')[0]:.4f}/job hot={'-' if hot is None else f'{hot:.2f}'}"
                print(f"{name:22} {m:8} {f(v[0])}/s (min {f(v[1])}, max {f(v[2])}){x}{c}", flush=True)
            if a.json:
                json.dump(results, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
