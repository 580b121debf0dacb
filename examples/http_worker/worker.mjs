// A worker over HTTP, for node 20 or newer and nothing else:
//   WATCHBILL_API_KEY=wb_... node worker.mjs [ADDRESS] [NAME]
// It registers, sends heartbeats, claims jobs, runs them, and reports how they ended. Each job has a fence. If another
// worker has taken over, because this one was silent for longer than its lease, the outcome under the old fence is
// refused: nothing is done twice in the database.
const [address = "http://127.0.0.1:8484", name = `js-${process.pid}`] = process.argv.slice(2);
const lease = Number(process.env.LEASE ?? 30);
const capacity = 4;
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// What this worker can do: a type of task, and a function of its payload.
const handlers = {
  "hello.greet": async ({ name }) => ({ text: `Hello, ${name}!` }),
  "hello.sleep": async ({ seconds }, stop) => {
    const until = Date.now() + seconds * 1000;
    while (Date.now() < until && !stop.aborted) await pause(0.02);
    if (stop.aborted) throw new Error("stopped");
  },
};

class Lost extends Error {}

async function ask(method, path, body) {
  const answer = await fetch(`${address}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${process.env.WATCHBILL_API_KEY}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const found = await answer.json();
  if (answer.status === 410) throw new Lost(found.detail);
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${found.detail}`);
  return found;
}

const running = new Map(); // by fence: the job, when it started, and how to stop it
let node, processed = 0, isStopping = false;

async function register() {
  running.forEach((run) => run.stop.abort());
  running.clear();
  const types = Object.fromEntries(Object.keys(handlers).map((type) => [type, 1]));
  node = await ask("POST", "/nodes", { name, lease, types, capacity, take_over: true });
  console.log(`registered as ${name}, epoch ${node.epoch}`);
}

async function run(job, at) {
  const started = Date.now(), stop = new AbortController();
  running.set(job.fence, { job, started, stop });
  const ending = { id: job.id, fence: job.fence };
  try {
    ending.result = (await handlers[job.type](job.payload, stop.signal)) ?? null;
  } catch (error) {
    ending.outcome = stop.signal.aborted ? "canceled" : "failed";
    ending.error = { type: error.name, message: error.message, traceback: error.stack };
  }
  ending.age = (Date.now() - started) / 1000;
  processed += 1;
  for (;;) {
    try {
      const { refused } = await ask("POST", `/nodes/${at}/settle`, { items: [ending] });
      console.log(`${refused.length ? "refused" : ending.outcome ?? "succeeded"} ${job.id}`);
      break;
    } catch (error) {
      if (error instanceof Lost) break; // the job belongs to another worker
      await pause(0.5); // the same outcome may be sent again: only the first one counts
    }
  }
  running.delete(job.fence);
}

async function beat() {
  while (!isStopping) {
    await pause(node.beat_every);
    const runs = [...running.values()].map(({ job, started }) => (
      { id: job.id, fence: job.fence, age: (Date.now() - started) / 1000 }));
    const { stop } = await ask("POST", `/nodes/${node.epoch}/heartbeat`, { running: runs, processed });
    for (const { job, stop: control } of running.values()) if (stop.includes(job.id)) control.abort();
  }
}

async function work() {
  while (!isStopping) {
    const free = capacity - running.size;
    if (!free) { await pause(0.05); continue; }
    const held = [...running.keys()];
    const { items } = await ask("POST", `/nodes/${node.epoch}/claim`, { max: free, wait: held.length ? 1 : 20, held });
    for (const job of items) { console.log(`started ${job.id}`); run(job, node.epoch); }
  }
}

process.on("SIGTERM", async () => {
  isStopping = true;
  await ask("DELETE", `/nodes/${node.epoch}`).catch(() => {});
  process.exit(0);
});
for (;;) {
  try {
    await register();
    await Promise.race([beat(), work()]);
  } catch (error) {
    console.log(`${error instanceof Lost ? "lost" : "error"}: ${error.message}`);
    await pause(0.5);
  }
}
