// What a job costs Redis with BullMQ: waiting, then done or, with `dead`, failed once. `node FILE PORT JOBS done|dead`, with the
// folder of its packages in TASKHARBOR_BENCH_PACKAGES. Prints one line of JSON for each state.

import { createRequire } from "node:module";

const imported = createRequire(`${process.env.TASKHARBOR_BENCH_PACKAGES}/`);
const { Queue, Worker } = imported("bullmq"), { Redis } = imported("ioredis");
const [port, jobs, end] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const connection = new Redis(port, "127.0.0.1", { maxRetriesPerRequest: null });
const queue = new Queue("default", { connection });
const job = { name: "mail", data: { to: "ada@example.com", n: 12345 } };

async function used() {
  await connection.call("MEMORY", "PURGE");
  return Number(/used_memory:(\d+)/.exec(await connection.info("memory"))[1]);
}

await queue.add(job.name, job.data);
await connection.flushall();
await connection.script("FLUSH");
const before = await used();
const say = async (state) => console.log(JSON.stringify([state, Math.round(((await used()) - before) / jobs)]));
for (let n = 0; n < jobs; n += 500) await queue.addBulk(Array(500).fill(job));
await say("waiting");
const run = async () => { if (end === "dead") throw new Error("the server said no"); };
const worker = new Worker("default", run, { connection, concurrency: 50 });
await new Promise((resolve) => {
  let ended = 0;
  const one = () => { if (++ended === jobs) resolve(); };
  worker.on("completed", one);
  worker.on("failed", one);
});
await worker.close();
await say(end);
await queue.close();
connection.disconnect();
