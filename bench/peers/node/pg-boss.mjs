// pg-boss: a loop over its `fetch` and `complete`, 500 jobs at a time. Its own `work` asks twice a second at most, so
// its pick-up is not measured.

import { main } from "./meter.mjs";

const QUEUE = "noop";

main({
  async open(order, imported) {
    const { PgBoss } = await imported("pg-boss");
    const boss = new PgBoss({ connectionString: order.address, supervise: false, schedule: false });
    boss.on("error", (error) => {
      throw error;
    });
    await boss.start();
    await boss.createQueue(QUEUE);
    return boss;
  },
  send: (boss) => boss.send(QUEUE, {}),
  sendMany: (boss, jobs) => boss.insert(QUEUE, Array.from({ length: jobs }, () => ({ data: {} }))),
  async work(boss, job) {
    for (;;) {
      const found = await boss.fetch(QUEUE, { batchSize: 500 });
      for (const each of found) await job(each);
      if (found.length) await boss.complete(QUEUE, found.map((each) => each.id));
    }
  },
});
