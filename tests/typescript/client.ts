// A client that is generated from the OpenAPI document: it enqueues a job, waits, and reads it back.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Job = components["schemas"]["Job"];

const client = createClient<paths>({
  baseUrl: `${process.env.BASE}/api/v1`,
  headers: { Authorization: `Bearer ${process.env.KEY}` },
});

const made = await client.POST("/jobs", {
  body: { type: "mail.send", payload: { to: "a@example.com" }, queue: "mail", priority: 3 },
});
if (made.error) throw new Error(JSON.stringify(made.error));
const id: string = made.data.id;

const shown = await client.GET("/jobs/{id}", { params: { path: { id } } });
if (shown.error) throw new Error(JSON.stringify(shown.error));
const job: Job = shown.data;
const seq: string = job.seq; // it has 64 bits, so it is a text

const listed = await client.GET("/jobs", { params: { query: { q: "type:mail.send state:queued", limit: 10 } } });
if (listed.error) throw new Error(JSON.stringify(listed.error));

const refused = await client.POST("/jobs", { body: { type: "", payload: {} } });
console.log(JSON.stringify({ id, state: job.state, seq, found: listed.data.items.length, status: refused.response.status }));
