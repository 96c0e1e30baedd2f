// BullMQ: one worker in this process with 100 slots; finished jobs are removed, as the others of this table do.

import { main } from "./meter.mjs";

const OPTIONS = { removeOnComplete: true };

main({
  async open(order, imported) {
    const { Queue, Worker } = await imported("bullmq");
    const address = new URL(order.address);
    const connection = { host: address.hostname, port: +address.port, maxRetriesPerRequest: null };
    return { queue: new Queue("bench", { connection }), Worker, connection };
  },
  send: ({ queue }) => queue.add("noop", {}, OPTIONS),
  sendMany: ({ queue }, jobs) => queue.addBulk(Array.from({ length: jobs }, () => ({ name: "noop", data: {}, opts: OPTIONS }))),
  async work({ Worker, connection }, job) {
    new Worker("bench", job, { connection, concurrency: 100 });
  },
});
