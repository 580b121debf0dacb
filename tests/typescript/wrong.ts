import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: "" });
await client.POST("/jobs", { body: { type: 5, payload: {} } });
